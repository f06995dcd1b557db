"""Skills: versions that passed the gate are stored so that each change is detected, and run as they were proven."""
