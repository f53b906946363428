// Package movers says what the movers of a copy are: Mover describes one, PodSpec is the pod that is made of it, and State
// is what is seen of that. The package is pure: no client, no clock. Package copying makes them.
package movers

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Mover describes one end of the copy of one volume: all that its objects are made of.
type Mover struct {
	// Ref is the backing claim that it reads or writes, and so its cluster and namespace. Name is that of its pod and Secret.
	Ref  backing.Ref
	Name string
	// For is the object on whose behalf the data is copied.
	For Owner
	// Session is the identity to which the keys of both ends are bound.
	Session string
	// Role is Sender or Receiver.
	Role moverapi.Role
	// Snapshot says that the sender reads a snapshot, NoSnapshot that what the receiver has was not copied from one.
	Snapshot, NoSnapshot bool
	// Block says that the volume is a block device. Scratch is how many bytes it may store on the disk of its node.
	Block   bool
	Scratch int64
	// Level is the SELinux level of a sender; empty: none is stated.
	Level string
	// User is as whom it runs; nil: as root.
	User *User
	// Keys are its one-time keys. Store is the repository through which content travels; nil: none.
	Keys  moverapi.Files
	Store *moverapi.Ticket
	// Image is its image, HomeID the ID of the home cluster.
	Image  string
	HomeID string
}

// End says for a sentence where it is.
func (m Mover) End() string {
	switch {
	case m.Role == moverapi.Receiver:
		return "target"
	case m.Snapshot:
		return "snapshot"
	}
	return "source"
}

// Owner is an object of home on whose behalf data is copied.
type Owner struct {
	types.NamespacedName
	UID types.UID
}

// User is as whom a mover runs that is not root: as a pod that uses the volume.
type User struct {
	ID int64 `json:"id"`
	// Group is that of its process; nil: that of the image.
	Group *int64 `json:"group,omitempty"`
	// Groups are its other groups, FSGroup is the one that the volume belongs to, if its driver can do that.
	Groups  []int64 `json:"groups,omitempty"`
	FSGroup *int64  `json:"fsGroup,omitempty"`
}

// State is the state of a mover.
type State struct {
	// Exists says that it, or its pod, may run; Leaving that it is being deleted.
	Exists, Leaving bool
	// Unstarted: it was created, and has neither keys nor been started.
	Unstarted bool
	// Running says that its pod is ready.
	Running bool
	// Ended says that it ended by itself and must be created again.
	Ended bool
	// Keyless says that it was started, has a node and has not been running for so long
	// that its Secret may be missing.
	Keyless bool
	// Node is the node of its pod; empty while it has none.
	Node string
	// Problem describes why it does not run, if known.
	Problem string
	// Pod is the UID of its pod, IPs the addresses in the pod's status; empty while there
	// is none.
	Pod types.UID
	IPs []string
}

// Ports of a mover.
const (
	DataPort    = 8440
	ControlPort = 8441
)

// capabilities are what a mover needs to preserve owners, modes, devices and capabilities
// of files. Pod Security level baseline allows each.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}

// PodSpec is the pod spec of a mover: the volume, its keys, space for manifests, and no
// access to the cluster. node is where it must run; empty: anywhere in that cluster.
func PodSpec(m Mover, node string) corev1.PodSpec {
	word, scratch := "receive", m.Scratch
	args := []string{"--move=" + m.Session, "--keys=/keys", "--volume=/volume", "--scratch=/scratch",
		fmt.Sprintf("--scratch-limit=%d", scratch), fmt.Sprintf("--data-address=:%d", DataPort)}
	ports := []corev1.ContainerPort{{Name: "data", ContainerPort: DataPort}}
	switch {
	case m.NoSnapshot:
		args = append(args, "--no-snapshot")
	case m.Snapshot:
		args = append(args, "--snapshot")
	}
	if m.Role == moverapi.Sender {
		word = "send"
		args = append(args, fmt.Sprintf("--control-address=:%d", ControlPort))
		ports = append(ports, corev1.ContainerPort{Name: "control", ContainerPort: ControlPort})
	}
	var term corev1.NodeSelectorTerm
	if node != "" {
		term = OnNode(node)
	}
	term.MatchExpressions = []corev1.NodeSelectorRequirement{{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		// Its scratch survives a crash of the program.
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To(GracePeriod(m, 5)),
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
			Name: "mover", Image: m.Image, Command: []string{"/lodestone-mover", word}, Args: args, Ports: ports,
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
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Ref.Name},
				}},
			{Name: "keys",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: m.Name, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "scratch",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratch+scratchMargin,
					resource.BinarySI)}}},
		},
	}
	if m.User != nil {
		withoutRoot(&spec, m.User)
	}
	if m.Level != "" && m.Role == moverapi.Sender {
		// Set the level only: tenants must not choose a process's type, user or role. At
		// the target nobody has the volume yet, and the first pod relabels it.
		spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: m.Level}
	}
	if m.Store != nil {
		// Restic needs more, see docs/benchmarks.md.
		spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("256Mi")
	}
	mountRepository(&spec, m)
	if m.Block {
		mover := &spec.Containers[0]
		mover.Args = append(mover.Args, "--block")
		mover.VolumeMounts = mover.VolumeMounts[1:]
		mover.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}
	}
	return spec
}

// withoutRoot makes a mover's pod one of a user other than root, which the Pod Security Standard restricted admits.
func withoutRoot(spec *corev1.PodSpec, user *User) {
	security, mover := spec.SecurityContext, &spec.Containers[0]
	security.RunAsNonRoot, security.RunAsUser, security.RunAsGroup = ptr.To(true), &user.ID, user.Group
	security.SupplementalGroups, security.FSGroup = user.Groups, user.FSGroup
	if user.FSGroup != nil {
		// The volume of a running pod has it already: nothing is changed below its root then.
		security.FSGroupChangePolicy = ptr.To(corev1.FSGroupChangeOnRootMismatch)
	}
	mover.SecurityContext.Capabilities.Add = nil
	mover.Args = append(mover.Args, "--rootless")
	for _, volume := range spec.Volumes {
		if volume.Secret != nil {
			// Its files are root's, and nobody else is in this pod.
			volume.Secret.DefaultMode = ptr.To(int32(0o444))
		}
	}
}

// repositoryGrace is how many seconds a mover may take to delete the move's data in a
// repository; its own timeout is a little shorter.
const repositoryGrace = 30

// GracePeriod is the termination grace period of a mover in seconds; otherwise is that of
// one without a repository.
func GracePeriod(m Mover, otherwise int64) int64 {
	if m.Store != nil && m.Role == moverapi.Sender {
		return repositoryGrace
	}
	return otherwise
}

// scratchMargin is more than the difference between the sizes of a mover's files and what
// they and its log take on a disk. So the mover stops with an error message before its node
// evicts it.
const scratchMargin = 256 << 20

// ScratchLimit is how many bytes a volume's mover may store on the disk of its node: as
// configured, 0 for nothing, else enough for a volume full of files of 16 KiB, or for one that holds more
// than its capacity.
func ScratchLimit(configured int64, volume *corev1.PersistentVolume) int64 {
	if configured > 0 {
		return configured
	}
	const least, part = 4 << 30, 16
	if volume == nil {
		return least
	}
	return least + volume.Spec.Capacity.Storage().Value()/part
}

// OnNode selects the node with this name.
func OnNode(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
		Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

// Labels are the labels of a mover and its Secret.
func Labels(m Mover) map[string]string {
	return map[string]string{keys.MoveOf: string(m.For.UID), keys.HomeID: m.HomeID, keys.PodUID: string(m.For.UID)}
}

// IsBlock says whether a volume is a block device.
func IsBlock(volume *corev1.PersistentVolume) bool {
	return volume != nil && ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

// repositoryPath is the mount path of a repository claim in movers.
const repositoryPath = "/repository"

// mountRepository mounts the repository claim in a mover, if the repository is a claim. The
// mover sees the data of moves of its own namespace only; at the target the mount is
// read-only.
func mountRepository(spec *corev1.PodSpec, m Mover) {
	if m.Store == nil || m.Store.Claim == "" {
		return
	}
	mover := &spec.Containers[0]
	mover.Args = append(mover.Args, "--repository="+repositoryPath)
	mover.VolumeMounts = append(mover.VolumeMounts, corev1.VolumeMount{
		Name: "repository", MountPath: repositoryPath, SubPath: path.Join("lodestone-moves", m.HomeID, m.For.Namespace),
		ReadOnly: m.Role == moverapi.Receiver,
	})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name:         "repository",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Store.Claim}},
	})
}
