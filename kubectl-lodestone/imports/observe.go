package imports

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// claimOf reads a claim, nil if there is none.
func claimOf(ctx context.Context, c *access.Cluster, at types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return claim, c.Explain("get claim "+at.String(), err)
}

// volumeOf reads a volume, nil if there is none.
func volumeOf(ctx context.Context, c *access.Cluster, name string) (*corev1.PersistentVolume, error) {
	volume, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return volume, c.Explain("get volume "+name, err)
}

// usersOf returns the names of the pods that use a claim.
func usersOf(ctx context.Context, c *access.Cluster, at types.NamespacedName) ([]string, error) {
	pods, err := c.Client.CoreV1().Pods(at.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.Explain("list pods of namespace "+at.Namespace, err)
	}
	var users []string
	for _, pod := range pods.Items {
		if access.Uses(&pod, at.Name) {
			users = append(users, pod.Name)
		}
	}
	return users, nil
}

// standsFor returns the virtual volume of home that stands for a backing claim,
// nil if none does.
func standsFor(ctx context.Context, home *access.Cluster, cluster string, b types.UID) (*corev1.PersistentVolume, error) {
	volumes, err := home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, home.Explain("list volumes", err)
	}
	for i, volume := range volumes.Items {
		if ref, err := backings.RefOf(&volume); err == nil && ref.Cluster == cluster && ref.UID == b {
			return &volumes.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

// ownerOf returns the virtual claim of home that a backing claim was made for, if
// it is still there.
func ownerOf(ctx context.Context, home *access.Cluster, b *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
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

// observe reads what home holds of the import of a real volume to a claim; without
// one, only of an import that is recorded.
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

// observeHolder adds who has the real volume and who uses it.
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
		if h.Old, err = standsFor(ctx, i.home, keys.Home, holder.UID); err != nil {
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
