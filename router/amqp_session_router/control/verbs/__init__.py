"""The control verbs, a module a family: each verb is one declaration (`declaration.Verb`), all are in `table`."""
