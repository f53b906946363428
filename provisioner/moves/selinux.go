package moves

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// level is what the level of a process looks like, as s0:c12,c34.
var level = regexp.MustCompile(`^s[0-9]{1,2}(-s[0-9]{1,2})?(:[c0-9.,]{1,200})?$`)

// levels returns the SELinux levels that a pod states for the containers that use a claim.
// A mover beside it needs the same: on nodes that enforce SELinux a volume is given the
// level of each pod that starts with it, and all others lose it.
func levels(spec *corev1.PodSpec, claim string) (stated []string) {
	for j := range spec.Containers {
		container := &spec.Containers[j]
		if !mounts(spec, container, claim) {
			continue
		}
		said := ""
		if s := spec.SecurityContext; s != nil && s.SELinuxOptions != nil {
			said = s.SELinuxOptions.Level
		}
		if s := container.SecurityContext; s != nil && s.SELinuxOptions != nil && s.SELinuxOptions.Level != "" {
			said = s.SELinuxOptions.Level
		}
		if level.MatchString(said) {
			stated = append(stated, said)
		}
	}
	return stated
}

// mounts says whether a container of a pod has a claim.
func mounts(spec *corev1.PodSpec, container *corev1.Container, claim string) bool {
	for _, volume := range spec.Volumes {
		if volume.PersistentVolumeClaim == nil || volume.PersistentVolumeClaim.ClaimName != claim {
			continue
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume.Name {
				return true
			}
		}
		for _, device := range container.VolumeDevices {
			if device.Name == volume.Name {
				return true
			}
		}
	}
	return false
}
