class ModelContext:
    model: str
