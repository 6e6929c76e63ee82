"""One module a subject: each holds a few commands and nothing that another command needs."""
