package moves

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Ports of a mover.
const (
	dataPort    = 8440
	controlPort = 8441
)

// capabilities are what a mover needs to preserve owners, modes, devices and capabilities
// of files. Pod Security level baseline allows each.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}

// moverSpec is the pod spec of a mover: the volume, its keys, space for manifests, and no
// access to the cluster. node is where it must run; empty: anywhere in that cluster.
func (c *Controller) moverSpec(r *record.Record, i int, end record.End, node string) corev1.PodSpec {
	name, word := r.MoverName(i, end), "receive"
	scratch := c.scratchLimit(r.Claims[i].Volume)
	args := []string{"--move=" + r.KeysOf(i), "--keys=/keys", "--volume=/volume", "--scratch=/scratch",
		fmt.Sprintf("--scratch-limit=%d", scratch), fmt.Sprintf("--data-address=:%d", dataPort)}
	ports := []corev1.ContainerPort{{Name: "data", ContainerPort: dataPort}}
	switch {
	case end == record.Target && !record.Before(r.Phase, v1alpha1.MoveFinalSync):
		args = append(args, "--no-snapshot")
	case end == record.Snapped:
		args = append(args, "--snapshot")
	}
	if end != record.Target {
		word = "send"
		args = append(args, fmt.Sprintf("--control-address=:%d", controlPort))
		ports = append(ports, corev1.ContainerPort{Name: "control", ContainerPort: controlPort})
	}
	var term corev1.NodeSelectorTerm
	if node != "" {
		term = onNode(node)
	}
	term.MatchExpressions = []corev1.NodeSelectorRequirement{{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		// Its scratch survives a crash of the program.
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To(gracePeriod(r, i, end, 5)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}},
		// It must run where the volume is.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "mover", Image: c.Image, Command: []string{"/lodestone-mover", word}, Args: args, Ports: ports,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
					// Without this the request would equal the limit, and no node might
					// have room for it.
					corev1.ResourceEphemeralStorage: resource.MustParse("0"),
				},
				Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
					// Otherwise a namespace's default limit would apply, which may be too
					// small: the mover would be evicted.
					corev1.ResourceEphemeralStorage: *resource.NewQuantity(scratch+2*scratchMargin, resource.BinarySI),
				},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "volume", MountPath: "/volume"}, {Name: "keys", MountPath: "/keys", ReadOnly: true}, {Name: "scratch", MountPath: "/scratch"},
			},
		}},
		Volumes: []corev1.Volume{
			// Not read-only: the last pass syncs the file system, and another pod on the
			// node has it mounted for writing.
			{Name: "volume",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.Claims[i].At(end).Ref.Name},
				}},
			{Name: "keys",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "scratch",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratch+scratchMargin,
					resource.BinarySI)}}},
		},
	}
	if known := r.Claims[i].Level; known != "" && end != record.Target {
		// Set the level only: tenants must not choose a process's type, user or role. At
		// the target nobody has the volume yet, and the first pod relabels it.
		spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: known}
	}
	if r.Claims[i].Store != nil {
		// Restic needs more, see docs/benchmarks.md.
		spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("256Mi")
	}
	c.mountRepository(&spec, r, i, end)
	if isBlock(r.Claims[i].Volume) {
		mover := &spec.Containers[0]
		mover.Args = append(mover.Args, "--block")
		mover.VolumeMounts = mover.VolumeMounts[1:]
		mover.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}
	}
	return spec
}

// repositoryGrace is how many seconds a mover may take to delete the move's data in a
// repository; its own timeout is a little shorter.
const repositoryGrace = 30

// gracePeriod is the termination grace period of a mover in seconds; otherwise is that of
// one without a repository.
func gracePeriod(r *record.Record, i int, end record.End, otherwise int64) int64 {
	if r.Claims[i].Store != nil && end != record.Target {
		return repositoryGrace
	}
	return otherwise
}

// scratchMargin is more than the difference between the sizes of a mover's files and what
// they and its log take on a disk. So the mover stops with an error message before its node
// evicts it.
const scratchMargin = 256 << 20

// scratchLimit is how many bytes a volume's mover may store on the disk of its node: as
// configured, else enough for a volume full of files of 16 KiB, or for one that holds more
// than its capacity.
func (c *Controller) scratchLimit(volume *corev1.PersistentVolume) int64 {
	if c.Scratch > 0 {
		return c.Scratch
	}
	const least, part = 4 << 30, 16
	if volume == nil {
		return least
	}
	return least + volume.Spec.Capacity.Storage().Value()/part
}

// onNode selects the node with this name.
func onNode(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
		Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

// moverLabels are the labels of a mover and its Secret.
func (c *Controller) moverLabels(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID, keys.PodUID: string(r.UID)}
}

// selinuxLevel is the syntax of a process's level, such as s0:c12,c34.
var selinuxLevel = regexp.MustCompile(`^s[0-9]{1,2}(-s[0-9]{1,2})?(:[c0-9.,]{1,200})?$`)

// selinuxLevels returns the SELinux levels in a pod's security contexts for the containers
// that use a claim. A mover beside it needs the same level: on nodes that enforce SELinux a
// volume is relabelled for each pod that starts with it, and all others lose access.
func selinuxLevels(spec *corev1.PodSpec, claim string) (stated []string) {
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
		if selinuxLevel.MatchString(said) {
			stated = append(stated, said)
		}
	}
	return stated
}

// mounts says whether a container of a pod mounts a claim.
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

// isBlock says whether a volume is a block device.
func isBlock(volume *corev1.PersistentVolume) bool {
	return volume != nil && ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}
