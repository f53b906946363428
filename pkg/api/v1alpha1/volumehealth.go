package v1alpha1

// VolumeHealth counts the virtual volumes of a cluster by how they are.
type VolumeHealth struct {
	// Bound have their real volume.
	Bound int `json:"bound"`

	// Pending wait for their real volume, as for their first pod.
	Pending int `json:"pending"`

	// Troubles are what is wrong with some of them, and with claims whose volume is
	// long in coming there, by the reason of the condition and the events of the claims.
	//
	// +optional
	// +listType=map
	// +listMapKey=reason
	Troubles []VolumeTrouble `json:"troubles,omitempty"`
}

// VolumeTrouble is something that is wrong with some volumes.
type VolumeTrouble struct {
	Reason  string `json:"reason"`
	Volumes int    `json:"volumes"`
}
