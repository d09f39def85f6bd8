"""What users declare about their groups, and how other processes find their code."""
