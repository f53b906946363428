package instant

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// deletedCheck is how often a claim whose provisioning hangs is checked for its deletion.
const deletedCheck = time.Second

var errClaimDeleted = errors.New("the claim is deleted")

// Provision makes a volume, or fails as the behaviour says.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	claim := options.PVC
	behavior, err := p.awaitBehavior(ctx, options)
	if errors.Is(err, errClaimDeleted) {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: err.Error()}
	}
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if err := pause(ctx, behavior.Delay); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if behavior.Refuse != "" {
		return nil, controller.ProvisioningFinished, errors.New(behavior.Refuse)
	}
	node := ""
	if options.SelectedNode != nil {
		node = options.SelectedNode.Name
		if behavior.full(node) {
			return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s has no room for the volume", node)
		}
	}
	source, err := p.sourceOf(ctx, claim)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	size := roundUp(claim.Spec.Resources.Requests[corev1.ResourceStorage])
	volume := p.storage.make(Volume{
		Handle:    p.name + "-" + options.PVName,
		Name:      options.PVName,
		Namespace: claim.Namespace,
		Claim:     claim.Name,
		Class:     options.StorageClass.Name,
		Node:      node,
		Source:    source,
		Bytes:     size.Value(),
	})
	return p.persistentVolume(options, volume), controller.ProvisioningFinished, nil
}

// awaitBehavior returns the behaviour for a claim once it is not to hang.
func (p *Provisioner) awaitBehavior(ctx context.Context, options controller.ProvisionOptions) (Behavior, error) {
	claim := options.PVC
	for {
		behavior, changed := p.behaviors.of(options.StorageClass.Name, claim.Namespace+"/"+claim.Name)
		if !behavior.Never {
			return behavior, nil
		}
		select {
		case <-ctx.Done():
			return Behavior{}, ctx.Err()
		case <-changed:
		case <-time.After(deletedCheck):
			live, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || (err == nil && live.UID != claim.UID) {
				return Behavior{}, errClaimDeleted
			}
		}
	}
}

// SupportsBlock tells the library that block volumes are made too.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// Delete removes a volume, or fails as the behaviour says.
func (p *Provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return fmt.Errorf("volume %s is not one of driver %s", volume.Name, p.name)
	}
	claim := ""
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	behavior, _ := p.behaviors.of(volume.Spec.StorageClassName, claim)
	if behavior.DeleteNever {
		return fmt.Errorf("the storage refuses to delete volume %s", volume.Name)
	}
	if err := pause(ctx, behavior.DeleteDelay); err != nil {
		return err
	}
	p.storage.remove(volume.Spec.CSI.VolumeHandle)
	return nil
}
