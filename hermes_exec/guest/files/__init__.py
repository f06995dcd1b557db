"""File operations: single files, trees and transfers."""
