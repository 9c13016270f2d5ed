"""The Play page: levels that a person plays or lets a model play (`session`, `model`), and its `routes`."""
