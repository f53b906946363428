package pods

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

// create creates the ShadowPod of a home pod; it starts nothing yet.
func (r *runner) create(ctx context.Context, k key, o decide.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	template, err := r.withClaims(ctx, k, o)
	if err != nil {
		return err
	}
	created, err := r.session.Remote.ShadowPods(k.namespace).Create(ctx, &shadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.namespace, Name: k.name,
			Labels:      map[string]string{keys.HomeID: r.session.HomeID, keys.PodUID: string(k.uid)},
			Annotations: map[string]string{keys.Pod: o.Pod.Namespace + "/" + o.Pod.Name},
			Finalizers:  []string{keys.ShadowPodFinalizer},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: r.session.HomeID, Namespace: o.Pod.Namespace, Name: o.Pod.Name, UID: k.uid},
			Pod:  template,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return r.examine(ctx, k)
	}
	if err != nil {
		return fmt.Errorf("create ShadowPod %s in cluster %s: %w", k, r.session.Cluster, err)
	}
	r.shadows.set(k.uid, created)
	return nil
}

// examine looks at the ShadowPod that has the name already.
func (r *runner) examine(ctx context.Context, k key) error {
	found, err := r.getShadow(ctx, k)
	switch {
	case err != nil:
		return err
	case found == nil:
		return errBehind
	case r.isOf(found, k.uid):
		r.shadows.set(k.uid, found)
		return nil
	case found.Labels[keys.HomeID] == r.session.HomeID:
		// Of an earlier pod of this name: its own turn comes by its own event.
		r.shadowChanged(found, false)
		return errBehind
	}
	return fmt.Errorf("ShadowPod %s in cluster %s belongs to somebody else: choose another name for the pod, or have it removed there", k, r.session.Cluster)
}

func (r *runner) getShadow(ctx context.Context, k key) (*shadowPod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := r.session.Remote.ShadowPods(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case absent(err, k.name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	return found, nil
}

// start lets the agent make the pod of just this ShadowPod.
func (r *runner) start(ctx context.Context, k key, shadow *shadowPod) error {
	return r.patchShadow(ctx, k, shadow, map[string]any{"start": true})
}

func (r *runner) patchShadow(ctx context.Context, k key, shadow *shadowPod, spec map[string]any) error {
	patch, err := encode(map[string]any{"metadata": map[string]any{"uid": shadow.UID}, "spec": spec})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	changed, err := r.session.Remote.ShadowPods(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		r.shadows.drop(k.uid)
		return fmt.Errorf("change ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	r.shadows.set(k.uid, changed)
	return nil
}

// follow carries the home pod's template to the ShadowPod, if that has not
// changed.
func (r *runner) follow(ctx context.Context, k key, o decide.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := o.Shadow.DeepCopy()
	wanted.Spec.Pod = o.Template
	changed, err := r.session.Remote.ShadowPods(k.namespace).Update(ctx, wanted, metav1.UpdateOptions{})
	if err != nil {
		r.shadows.drop(k.uid)
		return fmt.Errorf("change ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	r.shadows.set(k.uid, changed)
	return nil
}

// end deletes a ShadowPod, after saying how long its pod may take to end. One
// that is being deleted already is told a shorter time.
func (r *runner) end(ctx context.Context, k key, shadow *shadowPod, grace *int64) error {
	if had := shadow.Spec.GracePeriodSeconds; grace != nil && (had == nil || *had != *grace) {
		err := r.patchShadow(ctx, k, shadow, map[string]any{"gracePeriodSeconds": *grace})
		if err != nil && !absent(err, k.name) {
			return err
		}
	}
	if shadow.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.session.Remote.ShadowPods(k.namespace).Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
	r.shadows.drop(k.uid)
	if err != nil && !absent(err, k.name) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	return nil
}

// gone asks the remote cluster whether the copy of a home pod is gone. The pod
// must have ended before: only then nothing can be started any more. UIDs are proof
// enough that something is of this pod, whatever home called itself when it was
// made.
func (r *runner) gone(ctx context.Context, k key, pod *corev1.Pod) (bool, error) {
	found, err := r.getShadow(ctx, k)
	if err != nil {
		return false, err
	}
	had, _ := decide.CopyOf(pod)
	if found != nil && (found.UID == had.ShadowUID || (r.isOf(found, k.uid) && found.Spec.Start)) {
		r.shadows.set(k.uid, found)
		r.queue.Add(k)
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	left, err := r.session.Client.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: keys.PodUID + "=" + string(k.uid),
	})
	if err != nil {
		return false, fmt.Errorf("list the pods of a home pod in namespace %s of cluster %s: %w", k.namespace, r.session.Cluster, err)
	}
	return len(left.Items) == 0, nil
}
