// Package imports is the command import: it makes the data of a real claim, or of a retained
// volume, that of a virtual claim, without copying. Read command.go and then decide.go first.
//
// At home the real volume is bound to another claim, its twin; in a remote cluster the real claim
// stays and becomes the shadow. Either is done in steps. Each step is one write that fails if the
// object has changed since it was read, and the next step is decided from what the clusters hold
// then: so another run can complete what a stopped run has begun. At any time the real volume is
// bound to a claim or has the policy Retain, or both.
package imports

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Record is the annotation on a real volume of home that describes the import under way.
type Record struct {
	// Policy is the reclaim policy that the volume gets at the end.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	// From is the real claim that had the volume, its UID empty if none had.
	From Holder `json:"from"`
	// Old is the virtual volume through which the data was used before, empty for none.
	Old string `json:"old,omitempty"`
	// Claim is the virtual claim to make.
	Claim *corev1.PersistentVolumeClaim `json:"claim"`
}

// Holder names a claim.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
}

func (h Holder) String() string { return h.Namespace + "/" + h.Name }

// recordOf reads the record of a real volume, nil if there is none.
func recordOf(real *corev1.PersistentVolume) (*Record, error) {
	text := real.Annotations[keys.Import]
	if text == "" {
		return nil, nil //nolint:nilnil // no record is no error
	}
	record := &Record{}
	if err := json.Unmarshal([]byte(text), record); err != nil || record.Claim == nil || record.Policy == "" {
		return nil, fmt.Errorf("annotation %s of volume %s cannot be read: take it off, see that the volume's reclaim policy is right, "+
			"and import again", keys.Import, real.Name)
	}
	return record, nil
}

func (r *Record) text() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write the record of the import: %w", err)
	}
	return string(text), nil
}

// homeID identifies the import of a real volume of home, remoteID that of a claim of a remote
// cluster. The virtual claim has it in an annotation until it has its volume.
func homeID(real *corev1.PersistentVolume) string {
	return keys.Home + "/" + real.Name + "/" + string(real.UID)
}

func remoteID(cluster string, shadow *corev1.PersistentVolumeClaim) string {
	return backing.RefTo(cluster, shadow).String()
}

// foreignPrefixes are the prefixes of annotations that Kubernetes, kubectl or Lodestone wrote about
// the former claim, and that are not true of the new one.
var foreignPrefixes = []string{"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/",
	"lodestone.dev/"}

// virtualClaim returns the claim to make, as similar to like as possible. like is the former claim,
// nil if there is none.
func virtualClaim(at types.NamespacedName, class, id string, like *corev1.PersistentVolumeClaim,
	real *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{},
			Annotations: map[string]string{keys.Import: id}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: real.Spec.AccessModes, VolumeMode: real.Spec.VolumeMode, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]},
			},
		},
	}
	if name := real.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		claim.Spec.VolumeAttributesClassName = name
	}
	if like == nil {
		return claim
	}
	claim.Spec.AccessModes = like.Spec.AccessModes
	if asked, ok := like.Spec.Resources.Requests[corev1.ResourceStorage]; ok && asked.Cmp(real.Spec.Capacity[corev1.ResourceStorage]) <= 0 {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = asked
	}
	for key, value := range like.Labels {
		if !strings.HasPrefix(key, "lodestone.dev/") {
			claim.Labels[key] = value
		}
	}
	for key, value := range like.Annotations {
		if !hasAnyPrefix(key, foreignPrefixes) {
			claim.Annotations[key] = value
		}
	}
	return claim
}

func hasAnyPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// claimOf reads a claim, nil if there is none.
func claimOf(ctx context.Context, c *cli.Cluster, at types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return claim, c.Explain("get claim "+at.String(), err)
}

// volumeOf reads a volume, nil if there is none.
func volumeOf(ctx context.Context, c *cli.Cluster, name string) (*corev1.PersistentVolume, error) {
	volume, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return volume, c.Explain("get volume "+name, err)
}

// usersOf returns the names of the pods that use a claim.
func usersOf(ctx context.Context, c *cli.Cluster, at types.NamespacedName) ([]string, error) {
	pods, err := c.Client.CoreV1().Pods(at.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.Explain("list pods of namespace "+at.Namespace, err)
	}
	var users []string
	for _, pod := range pods.Items {
		if cli.UsesClaim(&pod, at.Name) {
			users = append(users, pod.Name)
		}
	}
	return users, nil
}

// virtualVolumeOf returns the virtual volume of home that refers to a backing claim, nil if none
// does.
func virtualVolumeOf(ctx context.Context, home *cli.Cluster, cluster string, b types.UID) (*corev1.PersistentVolume, error) {
	volumes, err := home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list volumes", err)
	}
	for i, volume := range volumes.Items {
		if ref, err := backing.RefOf(&volume); err == nil && ref.Cluster == cluster && ref.UID == b {
			return &volumes.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

// ownerOf returns the virtual claim of home that a backing claim was made for, if it still exists.
func ownerOf(ctx context.Context, home *cli.Cluster, b *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	namespace, name, ok := strings.Cut(b.Annotations[keys.Claim], "/")
	if !ok || b.Labels[keys.ClaimUID] == "" {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	owner, err := claimOf(ctx, home, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil || owner == nil || string(owner.UID) != b.Labels[keys.ClaimUID] {
		return nil, err
	}
	return owner, nil
}

// observe reads the state at home of the import of a real volume to a claim; without a claim, only
// of an import that is recorded.
func (i *importing) observe(ctx context.Context, volume string, target types.NamespacedName) (Home, error) {
	h := Home{Storage: i.StorageNamespace, HomeID: i.homeID}
	var err error
	if h.Real, err = i.home.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{}); err != nil {
		return h, i.home.Explain("get volume "+volume, err)
	}
	if h.Record, err = recordOf(h.Real); err != nil {
		return h, err
	}
	if h.Record != nil {
		target = types.NamespacedName{Namespace: h.Record.Claim.Namespace, Name: h.Record.Claim.Name}
	}
	if h.Record == nil && target.Name == "" {
		return h, nil
	}
	if err := i.observeHolder(ctx, &h); err != nil {
		return h, err
	}
	if h.Claim, err = claimOf(ctx, i.home, target); err != nil {
		return h, err
	}
	if h.Claim != nil && h.Holder != nil && h.Claim.UID == h.Holder.UID {
		if h.Record != nil {
			h.Claim = nil // its name is not free yet
		}
		return h, nil
	}
	if h.Claim == nil {
		return h, nil
	}
	if h.Twin, err = claimOf(ctx, i.home, h.twinName()); err != nil {
		return h, err
	}
	h.Virtual, err = volumeOf(ctx, i.home, "pvc-"+string(h.Claim.UID))
	return h, err
}

// observeHolder adds the claim that is bound to the real volume, and who uses it.
func (i *importing) observeHolder(ctx context.Context, h *Home) error {
	attachments, err := i.home.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return i.home.Explain("list volumeattachments", err)
	}
	names := []string{h.Real.Name}
	ref := h.Real.Spec.ClaimRef
	if ref == nil {
		h.Node = attachedTo(attachments.Items, names)
		return nil
	}
	at := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	holder, err := claimOf(ctx, i.home, at)
	if err != nil {
		return err
	}
	if holder != nil && holder.UID == ref.UID {
		h.Holder = holder
		if h.Users, err = usersOf(ctx, i.home, at); err != nil {
			return err
		}
		if h.Old, err = virtualVolumeOf(ctx, i.home, keys.Home, holder.UID); err != nil {
			return err
		}
		if h.Old != nil {
			names = append(names, h.Old.Name)
		}
		if h.Owner, err = ownerOf(ctx, i.home, holder); err != nil {
			return err
		}
	}
	h.Node = attachedTo(attachments.Items, names)
	return nil
}

// source is what a name on the command line refers to.
type source struct {
	// volume is a real volume of home, empty if the data is in a remote cluster.
	volume string
	// cluster and name are a claim there.
	cluster, name string
	// backing is the UID that the claim there must have, empty for any.
	backing types.UID
	// as is the name of the virtual claim.
	as string
	// done says that there is nothing to import: the claim has that data already.
	done bool
}

// findClaim resolves the name of a claim: a real claim, or a claim of an import that was stopped.
func (i *importing) findClaim(ctx context.Context, name string) (source, error) {
	if i.Cluster != "" {
		return source{cluster: i.Cluster, name: name, as: name}, nil
	}
	at := types.NamespacedName{Namespace: i.namespace, Name: name}
	claim, err := claimOf(ctx, i.home, at)
	if err != nil {
		return source{}, err
	}
	if claim != nil {
		if volume, ok := strings.CutPrefix(claim.Annotations[keys.Import], keys.Home+"/"); ok {
			volume, _, _ = strings.Cut(volume, "/")
			return source{volume: volume, as: name}, nil
		}
	}
	volume, err := i.findRecorded(ctx, func(r *Record) bool {
		return r.From.String() == at.String() || r.Claim.Namespace+"/"+r.Claim.Name == at.String()
	})
	if err != nil || volume != "" {
		return source{volume: volume, as: i.claimName(name)}, err
	}
	switch {
	case claim == nil:
		return source{}, i.home.Missing(ctx, cli.Claim, i.namespace, name)
	case claim.Spec.VolumeName == "":
		return source{}, cli.Refuse("claim %s has no volume yet, so there is nothing to import: delete it and create it anew with the "+
			"virtual class", at)
	}
	bound, err := volumeOf(ctx, i.home, claim.Spec.VolumeName)
	if err != nil {
		return source{}, err
	}
	if bound != nil && bound.Annotations[keys.Backing] != "" {
		return source{done: true}, nil
	}
	return source{volume: claim.Spec.VolumeName, as: i.claimName(name)}, nil
}

// findVolume resolves the name of a volume of home.
func (i *importing) findVolume(ctx context.Context, name string) (source, error) {
	volume, err := volumeOf(ctx, i.home, name)
	if err != nil {
		return source{}, err
	}
	if volume == nil {
		real, err := i.findRecorded(ctx, func(r *Record) bool { return r.Old == name })
		if err == nil && real == "" {
			err = fmt.Errorf("%w; if an import of data in a remote cluster removed it, go on with kubectl lodestone import pvc/NAME --cluster "+
				"CLUSTER", i.home.Missing(ctx, cli.Volume, "", name))
		}
		return source{volume: real}, err
	}
	as := volume.Name
	if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace != i.StorageNamespace {
		as = ref.Name
	}
	if volume.Annotations[keys.Backing] == "" {
		return source{volume: name, as: i.claimName(as)}, nil
	}
	ref, err := backing.RefOf(volume)
	if err != nil {
		return source{}, err
	}
	if err := checkReleased(volume); err != nil {
		return source{}, err
	}
	if ref.Cluster != keys.Home {
		if i.As != "" && i.As != ref.Name {
			return source{}, cli.Misuse("the claim in cluster %q keeps its name %q: leave out --as", ref.Cluster, ref.Name)
		}
		return source{cluster: ref.Cluster, name: ref.Name, backing: ref.UID, as: ref.Name}, nil
	}
	return source{volume: volume.Annotations[keys.BackingVolume], as: i.claimName(as)}, nil
}

func (i *importing) claimName(other string) string {
	if i.As != "" {
		return i.As
	}
	return other
}

// findRecorded returns the name of the real volume whose record fits, empty if none does.
func (i *importing) findRecorded(ctx context.Context, fits func(*Record) bool) (string, error) {
	volumes, err := i.home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", i.home.Explain("list volumes", err)
	}
	for _, volume := range volumes.Items {
		// A record that cannot be read matters only to those who name its volume.
		if record, err := recordOf(&volume); err == nil && record != nil && fits(record) {
			return volume.Name, nil
		}
	}
	return "", nil
}

func attachedTo(attachments []storagev1.VolumeAttachment, volumes []string) string {
	for _, a := range attachments {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && slices.Contains(volumes, *name) {
			return a.Spec.NodeName
		}
	}
	return ""
}
