// Package crash is the crash sweep: whatever the provisioner does for a claim, it
// is stopped, refused or cut off at each API call that it makes for it, in turn,
// and the claim must still end as its user asked.
//
// The provisioner runs as a process of its own and reaches both clusters through
// a Gate, a proxy that knows which claim each request is for. A Case is one claim
// in namespaces of its own, with one Fault at one Call of one Flow. Cases do not
// see each other, so one process serves many: a case whose provisioner is stopped
// gets nothing through any more, and once every case of the batch is that far the
// process is killed and another one started. To each case it is as if the program
// had died at its call.
//
// Counted are the calls that the provisioner makes for a claim since the user's
// act: every write, every read of one object, and each list of the pods of a namespace
// by which a move looks who uses a volume. Not counted are other lists, which name no
// claim, watches, leases, the regular looks at a remote cluster, and, except for answers
// that are errors, events: client-go writes those from a thread of its own, so
// that no step of a flow comes before or after one.
package crash
