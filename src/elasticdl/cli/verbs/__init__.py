"""One module for each verb of the command line, imported when the verb is used."""
