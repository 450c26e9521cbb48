"""The configuration file: schema, loader and the settings made from it."""
