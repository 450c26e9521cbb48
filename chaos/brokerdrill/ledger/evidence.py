"""Words of the events that say how much was seen: keys and values of their details, all texts.

Who writes them and what they mean stands in the ledger's specification ("Evidence").
"""

from __future__ import annotations

# In the details of `log read`: the time that was read, from and to (run time in ns, on the event's clock), of how many
# boots, and how many lines were lost to rotation or to a limit of their rate.
READ_FROM, READ_UNTIL, READ_BOOTS, READ_LOST = "from_ns", "until_ns", "boots", "lost"
# The note of a fault that killed processes of the load: in its detail the clients in them, joined by CLIENTS_SEPARATOR.
CLIENTS_KILLED = "clients killed"
CLIENTS = "clients"
CLIENTS_SEPARATOR = ", "
# In the details of the notes of a playbook: the instances that it works on; of `log read`: all in that process; a line
# each.
INSTANCES = "instances"
# In the details of a fault: after how many seconds its host undoes it by itself; of a heal: who did it.
TTL, BY, BY_TTL = "ttl_s", "by", "time-to-live"
# The name of a role that the instance's own log shows.
BY_LOG = "log"
# The values of `health` between which an instance answered nobody who asked it.
SILENT, ANSWERS = "silent", "answers"
# The value of a host's `health` when it is back and has been started anew.
RESTARTED = "restarted"
# In the details of `met`: what counters on the hosts say (texts of whole numbers).
MET_COUNTS = ("packets", "bytes", "connections", "closed", "messages")
# In the details of `pressure`: since when, and for how long of that time something had to wait for what it names.
SINCE, STALLED = "since_ns", "stalled_ns"
# Whose waiting that was: of the instances' services and the drill's own processes, or of anything on the host.
SCOPE, SERVICES, WHOLE_HOST = "scope", "services", "host"
STEAL = "steal"
PRESSURES = ("cpu", "memory", "io", STEAL)
# In the details of `polls`: how many, the longest time between two, and the times (`BEGIN-END`, ns, joined by ", ")
# without an answer that were longer than was meant.
POLLS, LONGEST, GAPS = "count", "longest_ns", "gaps"
# In the details of `clock`: as in run.json (texts of whole numbers).
OFFSET, UNCERTAINTY = "offset_ns", "uncertainty_ns"
# In the details of `piece`: its size, and its sum in hexadecimal.
BYTES, SHA256 = "bytes", "sha256"
# The name of the note that a host's wall clock was set; its value is by how many seconds.
CLOCK_STEP = "clock step"
