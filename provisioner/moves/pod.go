package moves

import (
	"fmt"

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

// capabilities are those that a mover needs to keep everything: owners, modes, devices
// and capabilities of files. Pod Security baseline allows each.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}

// spare is more than what a mover keeps takes by its sizes on a disk, and than its log
// does. So it stops in words before its node evicts it.
const spare = 256 << 20

// scratchLimit is how many bytes a mover of a volume may keep on the disk of its node:
// what was configured, else enough for a volume of files of 16 KiB, or one that holds
// more than its capacity.
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

// moverSpec is the pod of a mover: the volume, its keys, room for manifests, and nothing
// of the cluster. node is where it must run; empty: anywhere in that cluster.
func (c *Controller) moverSpec(r *record.Record, i int, end record.End, node string) corev1.PodSpec {
	name, word := r.MoverName(i, end), "receive"
	scratch := c.scratchLimit(r.Claims[i].Volume)
	args := []string{"--move=" + r.KeysOf(i), "--keys=/keys", "--volume=/volume", "--scratch=/scratch", fmt.Sprintf("--scratch-limit=%d", scratch), fmt.Sprintf("--data-address=:%d", dataPort)}
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
		// Its scratch outlives a crash of the program.
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To(graceOf(r, i, end, 5)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}},
		// It goes where the volume is.
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
					// Else it would be the limit, for which no node has to have room.
					corev1.ResourceEphemeralStorage: resource.MustParse("0"),
				},
				Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
					// A namespace's default is not made for movers, which would be evicted for it.
					corev1.ResourceEphemeralStorage: *resource.NewQuantity(scratch+2*spare, resource.BinarySI),
				},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "volume", MountPath: "/volume"}, {Name: "keys", MountPath: "/keys", ReadOnly: true}, {Name: "scratch", MountPath: "/scratch"},
			},
		}},
		Volumes: []corev1.Volume{
			// Not read-only: the last pass has the file system synced, and another pod on the
			// node has it mounted for writing.
			{Name: "volume", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.Claims[i].At(end).Ref.Name}}},
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratch+spare, resource.BinarySI)}}},
		},
	}
	if known := r.Claims[i].Level; known != "" && end != record.Target {
		// The level alone: what type, user or role a process has is not for tenants to say.
		// At the target nobody has the volume yet, and the first pod gets it.
		spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: known}
	}
	if r.Claims[i].Store != nil {
		// Restic takes more, see docs/benchmarks.md.
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

// leaving is how many seconds a mover may take to remove what the move has in a repository;
// it takes a little less itself.
const leaving = 30

// graceOf is how many seconds a mover may take to end, of which otherwise would do.
func graceOf(r *record.Record, i int, end record.End, otherwise int64) int64 {
	if r.Claims[i].Store != nil && end != record.Target {
		return leaving
	}
	return otherwise
}

// onNode selects a node.
func onNode(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

// moverLabels are on a mover and its Secret.
func (c *Controller) moverLabels(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID, keys.PodUID: string(r.UID)}
}
