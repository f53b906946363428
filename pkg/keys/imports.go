package keys

// Annotations of what users do about volumes by hand, with kubectl lodestone.
const (
	// Lost is, on a virtual volume whose data is in a remote cluster, the time at
	// which a user declared that data lost: the volume may then go without a word
	// from that cluster, in which nothing is touched.
	Lost = "lodestone.dev/lost"

	// Import is, on a real volume of home, the record of an import of that volume
	// that is under way, and on a virtual claim that an import made, which one. On
	// a claim of a remote cluster it is the ID of the home cluster to which an import
	// that has not ended gave it: so that can be undone.
	Import = "lodestone.dev/import"
)
