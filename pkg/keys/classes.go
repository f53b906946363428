package keys

// Parameters of a virtual storage class; see package virtualclass.
const (
	LocalClass  = "lodestone.dev/local-class"
	RemoteClass = "lodestone.dev/remote-class"
	Clusters    = "lodestone.dev/clusters"
	Classes     = "lodestone.dev/classes"

	// Siblings says whether new volumes of a StatefulSet go to the clusters that
	// hold the volumes of its other pods: SiblingsPack, SiblingsSpread or
	// SiblingsIgnore.
	Siblings       = "lodestone.dev/siblings"
	SiblingsPack   = "pack"
	SiblingsSpread = "spread"
	SiblingsIgnore = "ignore"
)

// Carry is a parameter of a virtual storage class: the keys of labels and
// annotations, separated by commas and each perhaps with an asterisk at its end,
// that backing claims have from their virtual claims.
const Carry = "lodestone.dev/carry"

// MarkerResource is an extended resource that no node has and kube-scheduler
// ignores: where kube-scheduler is told that the extender manages it, only pods
// that ask for it are sent to the extender.
const MarkerResource = "lodestone.dev/scheduling"
