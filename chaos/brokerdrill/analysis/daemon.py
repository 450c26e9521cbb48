"""The process that Spark forks the tasks' Python workers from: what each would import is imported once."""

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
