package keys

const (
	// SourceCluster is an annotation on a virtual claim that is to be made from a
	// VolumeSnapshot: the cluster that has the snapshot's data, as far as that is
	// known. Its pods go there and nowhere else; what is made is decided without it.
	SourceCluster = "lodestone.dev/source-cluster"

	// ContentUID is a label on a VolumeSnapshot of a remote cluster: the UID of the
	// VolumeSnapshotContent at home that it was taken for. Together with HomeID it is
	// the owner check.
	ContentUID = "lodestone.dev/content-uid"

	// Content is an annotation beside ContentUID: the name of that content.
	Content = "lodestone.dev/content"

	// MadeBy is an annotation on a VolumeSnapshot of a remote cluster: the CSI driver
	// of the volume that it was taken of. A class of another driver would make an
	// empty volume of it.
	MadeBy = "lodestone.dev/driver"
)
