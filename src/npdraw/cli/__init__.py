"""The command line: one file for each verb or family of verbs. Nothing else imports it."""
