"""Pure decisions: rules, keys, partition policies, backend selectors."""
