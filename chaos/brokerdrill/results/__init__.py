"""What finished runs say: verdicts, the table of results, trends."""
