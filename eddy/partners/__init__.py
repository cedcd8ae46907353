"""Left, semi, anti and full joins as an operator: it follows inner joins, and gives the rows that have no partner."""
