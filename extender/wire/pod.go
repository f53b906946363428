package wire

import (
	"strings"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// maxNear bounds how many claims a pod can be near to: its user writes the list.
	maxNear = 64
	// maxName bounds the name of a pod, as Kubernetes does.
	maxName = 253
)

type podJSON struct {
	Metadata podMetaJSON `json:"metadata"`
	Spec     podSpecJSON `json:"spec"`
}

type podMetaJSON struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Annotations map[string]string `json:"annotations"`
	Owners      []ownerJSON       `json:"ownerReferences"`
}

type ownerJSON struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Controller bool   `json:"controller"`
}

type podSpecJSON struct {
	Volumes []volumeJSON `json:"volumes"`
}

type volumeJSON struct {
	Name      string     `json:"name"`
	Claim     *claimJSON `json:"persistentVolumeClaim"`
	Ephemeral *struct{}  `json:"ephemeral"`
}

type claimJSON struct {
	ClaimName string `json:"claimName"`
}

func podOf(sent *podJSON) snapshot.Pod {
	pod := snapshot.Pod{
		Namespace: sent.Metadata.Namespace,
		Name:      sent.Metadata.Name,
		UID:       sent.Metadata.UID,
		Near:      near(sent.Metadata.Annotations[keys.Near]),
	}
	for _, owner := range sent.Metadata.Owners {
		if !owner.Controller || !strings.HasPrefix(owner.APIVersion, "apps/") {
			continue
		}
		switch owner.Kind {
		case "DaemonSet":
			pod.Daemon = true
		case "StatefulSet":
			pod.StatefulSet = owner.Name
		}
	}
	for _, volume := range sent.Spec.Volumes {
		switch {
		case volume.Claim != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: volume.Claim.ClaimName})
		case volume.Ephemeral != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: ephemeralClaim(pod.Name, volume.Name), Ephemeral: true})
		}
	}
	return pod
}

// ephemeralClaim returns the name of the claim that is made for a volume of a pod;
// empty if there can be no such pod, whose name would be repeated for each volume.
func ephemeralClaim(pod, volume string) string {
	if len(pod) > maxName {
		return ""
	}
	return pod + "-" + volume
}

func near(annotation string) []string {
	var names []string
	for name := range strings.SplitSeq(annotation, ",") {
		if name = strings.TrimSpace(name); name != "" && len(names) < maxNear {
			names = append(names, name)
		}
	}
	return names
}

func (s *scanner) pod(to *podJSON) bool {
	return s.object(
		member{"metadata", func() bool { return s.podMeta(&to.Metadata) }},
		member{"spec", func() bool {
			return s.object(member{"volumes", func() bool {
				return s.list(func() bool { return s.volume(&to.Spec.Volumes) })
			}})
		}},
	)
}

func (s *scanner) podMeta(to *podMetaJSON) bool {
	return s.object(
		member{"namespace", func() bool { return s.into(&to.Namespace) }},
		member{"name", func() bool { return s.into(&to.Name) }},
		member{"uid", func() bool { return s.into(&to.UID) }},
		member{"annotations", func() bool {
			value, found, ok := s.entry(keys.Near)
			if found {
				to.Annotations = map[string]string{keys.Near: value}
			}
			return ok
		}},
		member{"ownerReferences", func() bool {
			return s.list(func() bool { return s.owner(&to.Owners) })
		}},
	)
}

func (s *scanner) owner(to *[]ownerJSON) bool {
	var owner ownerJSON
	ok := s.object(
		member{"apiVersion", func() bool { return s.into(&owner.APIVersion) }},
		member{"kind", func() bool { return s.into(&owner.Kind) }},
		member{"name", func() bool { return s.into(&owner.Name) }},
		member{"controller", func() bool {
			owner.Controller = s.next() == 't'
			return s.word("true") || s.word("false")
		}},
	)
	if owner.Controller {
		*to = append(*to, owner)
	}
	return ok
}

func (s *scanner) volume(to *[]volumeJSON) bool {
	var volume volumeJSON
	ok := s.object(
		member{"name", func() bool { return s.into(&volume.Name) }},
		member{"persistentVolumeClaim", func() bool {
			volume.Claim = &claimJSON{}
			return s.object(member{"claimName", func() bool { return s.into(&volume.Claim.ClaimName) }})
		}},
		member{"ephemeral", func() bool {
			volume.Ephemeral = &struct{}{}
			return s.next() == '{' && s.skip()
		}},
	)
	if volume.Claim != nil || volume.Ephemeral != nil {
		*to = append(*to, volume)
	}
	return ok
}
