package keys

// Names in a remote cluster.
const (
	// TenantPrefix and the home cluster's ID make the name of the namespace that
	// holds a home cluster's identity, requests and heartbeat.
	TenantPrefix = "lodestone-home-"

	// HomeAccount is the name of the home cluster's ServiceAccount in its
	// tenant namespace.
	HomeAccount = "lodestone-home"

	// HomeUserPrefix and the home cluster's ID make the user name of a home
	// cluster that logs in with a client certificate; HomesGroup is its group.
	HomeUserPrefix = "lodestone:home:"
	HomesGroup     = "lodestone:homes"

	// HeartbeatLease is the Lease in the tenant namespace that home renews while
	// it runs pods there: without it, the remote agent keeps the pods running.
	HeartbeatLease = "home"
)

// HealingRecord is an annotation, on a real volume of a remote cluster whose shadow
// somebody deleted: what the remote agent needs to make the shadow anew; see its
// package policy. Such a volume has the label Healing with the ID of the home
// cluster, and the new shadow the annotation Healing until it is bound.
const HealingRecord = "lodestone.dev/healing-record"
