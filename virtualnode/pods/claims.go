package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// withClaims returns the template of a pod with the real claims that the volumes of its
// claims name. It asks the home cluster, never caches: after a move the claim of before
// may still be there, with an older copy of the data. As long as the home pod is there
// no move takes its volumes from it, so what it is told stays true.
func (r *runner) withClaims(ctx context.Context, k key, o decide.Observation) (corev1.PodTemplateSpec, error) {
	template, names := *o.Template.DeepCopy(), map[string]string{}
	for i := range template.Spec.Volumes {
		source := template.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		name, err := r.realClaim(ctx, k, o.Pod.Namespace, source.ClaimName)
		if err != nil {
			return template, err
		}
		names[source.ClaimName] = name
	}
	translate.Rename(&template, names)
	return template, nil
}

// realClaim returns the name of the claim in the remote cluster that a claim of home
// stands for. Where nothing of home says, it is the same.
func (r *runner) realClaim(ctx context.Context, k key, namespace, name string) (string, error) {
	core := r.config.Home.CoreV1()
	claim, err := core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case absent(err, name):
		return name, nil
	case err != nil:
		return "", fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	case claim.Spec.VolumeName == "":
		return name, nil
	}
	volume, err := core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("claim %s/%s has lost its volume %s: the pod starts when it has that again", namespace, name, claim.Spec.VolumeName)
	case err != nil:
		return "", fmt.Errorf("get volume %s of claim %s/%s: %w", claim.Spec.VolumeName, namespace, name, err)
	case volume.Annotations[keys.Backing] == "":
		return name, nil
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return "", fmt.Errorf("volume %s is not, or no longer, that of claim %s/%s", volume.Name, namespace, name)
	}
	ref, err := backings.RefOf(volume)
	if err != nil {
		return "", fmt.Errorf("volume %s of claim %s/%s: %w", volume.Name, namespace, name, err)
	}
	if ref.Cluster != r.session.Cluster || ref.Namespace != k.namespace {
		return "", fmt.Errorf("the data of claim %s/%s is not in namespace %s of cluster %s, but in %s of %s: delete the pod, so that another is scheduled to its data",
			namespace, name, k.namespace, r.session.Cluster, ref.Namespace, ref.Cluster)
	}
	return ref.Name, nil
}
