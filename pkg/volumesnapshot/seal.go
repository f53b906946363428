package volumesnapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
)

// Seal is what a sealed version of a VolumeReplica says of itself, so that its cluster can make the claim of it when the home cluster,
// which knows all of this, is lost. The home cluster writes it when it takes the snapshot: once the copy was compared.
type Seal struct {
	// Namespace, Name and UID are those of the claim at home.
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Primary is the cluster that had the data.
	Primary string `json:"primary"`
	// Number counts the versions, and Cut is the moment that this one is of, by the clock of home.
	Number int64     `json:"number"`
	Cut    time.Time `json:"cut"`
	// Root is the hash of all that is in it.
	Root string `json:"root"`
	// Group are the names of the claims of which the version has a snapshot each, of that moment, if there are several: it is whole
	// only with all of them.
	Group []string `json:"group,omitempty"`
	// Class, Size, AccessModes and VolumeMode are those of the real claim that the snapshot is of.
	Class       string                              `json:"class"`
	Size        resource.Quantity                   `json:"size"`
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	VolumeMode  *corev1.PersistentVolumeMode        `json:"volumeMode,omitempty"`
}

// Encode returns the stored form of a seal.
func (s *Seal) Encode() (string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode what a version says of itself: %w", err)
	}
	return string(data), nil
}

// DecodeSeal parses what Encode returned. Whoever reads it need not trust the cluster that wrote it: a seal that no claim can be made
// of is an error.
func DecodeSeal(data string) (*Seal, error) {
	s := &Seal{}
	if err := json.Unmarshal([]byte(data), s); err != nil {
		return nil, fmt.Errorf("decode what a version says of itself: %w", err)
	}
	switch {
	case len(validation.NameIsDNSSubdomain(s.Name, false)) > 0:
		return nil, fmt.Errorf("a version says that it is of claim %q, which is no name", s.Name)
	case len(validation.NameIsDNSSubdomain(s.Class, false)) > 0:
		return nil, fmt.Errorf("a version says that it is of class %q, which is no name", s.Class)
	case slices.ContainsFunc(s.Group, func(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) > 0 }),
		len(s.Group) > 0 && !slices.Contains(s.Group, s.Name):
		return nil, fmt.Errorf("a version of claim %q says that it is of claims %q at one moment, which are no names, or not with it",
			s.Name, s.Group)
	case s.Cut.IsZero() || s.Size.Sign() <= 0 || len(s.AccessModes) == 0:
		return nil, fmt.Errorf("a version of claim %q does not say its moment, its size or its access modes", s.Name)
	}
	return s, nil
}
