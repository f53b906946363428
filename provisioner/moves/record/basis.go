package record

// Basis is a sealed version of a replica, in the cluster of the target, that the target is made from: then only what differs travels. It
// may be old, or altered, and counts for nothing: all is copied and compared as into an empty target.
type Basis struct {
	// Replica is the name of the VolumeReplica.
	Replica string `json:"replica"`
	Sealed
	// Why says why the target is made empty after all; empty: it is not.
	Why string `json:"why,omitempty"`
}

// InUse says whether the target is made from it.
func (b *Basis) InUse() bool { return b != nil && b.Why == "" }
