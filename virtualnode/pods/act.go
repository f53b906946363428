package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// errChanged means that an object has changed since the decision was made.
var errChanged = errors.New("it has changed since it was read")

// passing reports whether an error goes away without anybody's action.
func passing(err error) bool { return errors.Is(err, errChanged) || apierrors.IsConflict(err) }

func (r *runner) act(ctx context.Context, k key, o decide.Observation, step decide.Step) outcome {
	switch step.Verb {
	case decide.Refuse:
		return r.refuse(ctx, o, step)
	case decide.Protect:
		return andAgain(r.protect(ctx, o.Pod))
	case decide.Create:
		return r.createOrWait(ctx, k, o)
	case decide.Replace:
		return outcome{err: r.replace(ctx, o.Pod), after: lookAgain}
	case decide.Record:
		copied := decide.Copy{ClusterUID: o.ClusterUID, ShadowUID: o.Shadow.UID, Namespace: k.namespace}
		return andAgain(r.annotate(ctx, o.Pod, keys.RemoteCopy, copied.String()))
	case decide.Start:
		return andAgain(r.start(ctx, k, o.Shadow))
	case decide.Follow:
		return andAgain(r.follow(ctx, k, o))
	case decide.Report, decide.Fail:
		return andAgain(r.writeStatus(ctx, o.Pod, step.Status))
	case decide.Annotate:
		return andAgain(r.annotate(ctx, o.Pod, keys.RemoteIP, step.Address))
	case decide.Lose:
		return r.lose(ctx, k, o)
	case decide.End:
		return outcome{err: r.end(ctx, k, o.Shadow, step.Grace), after: lookAgain}
	case decide.Finish:
		return r.finish(ctx, k, o)
	case decide.Release:
		return outcome{err: r.release(ctx, o.Pod)}
	case decide.Sweep:
		return r.sweep(ctx, k, o.Shadow)
	case decide.Idle:
	}
	return outcome{}
}

// andAgain returns the outcome of a step after which the pod is reconciled again at once.
func andAgain(err error) outcome { return outcome{err: err, again: err == nil} }

// refuse marks a pod as failed. If its namespace may not use the cluster, that is read again first,
// since the namespace may just have been changed.
func (r *runner) refuse(ctx context.Context, o decide.Observation, step decide.Step) outcome {
	if !o.Open {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		namespace, err := r.config.Home.CoreV1().Namespaces().Get(ctx, o.Pod.Namespace, metav1.GetOptions{})
		if err != nil {
			return outcome{err: fmt.Errorf("get namespace %s: %w", o.Pod.Namespace, err)}
		}
		if remotecluster.MayUse(namespace, r.session.Cluster) {
			return outcome{err: errChanged}
		}
	}
	return andAgain(r.writeStatus(ctx, o.Pod, step.Status))
}

// lose marks a home pod as failed whose ShadowPod and pod are proven gone, though this program did
// not delete them.
func (r *runner) lose(ctx context.Context, k key, o decide.Observation) outcome {
	gone, err := r.gone(ctx, k, o.Pod)
	if err != nil || !gone {
		return outcome{err: err, after: lookAgain}
	}
	text := fmt.Sprintf("the ShadowPod and the pod were deleted in cluster %s", r.session.Cluster)
	status := decide.Failed(o.Pod, "RemotePodGone", text)
	r.tell(k, o.Pod, &decide.Message{Warning: true, Reason: "RemotePodGone", Text: text})
	return andAgain(r.writeStatus(ctx, o.Pod, status))
}

// finish removes the finalizer of a home pod that has ended, once its copy is proven gone.
func (r *runner) finish(ctx context.Context, k key, o decide.Observation) outcome {
	gone, err := r.gone(ctx, k, o.Pod)
	if err != nil || !gone {
		return outcome{err: err, after: lookAgain}
	}
	pod := o.Pod
	if len(pod.Finalizers) > 1 && !decide.Ended(pod) {
		// Controllers with a finalizer on the pod wait for its final phase.
		if err := r.writeStatus(ctx, pod, decide.Failed(pod, "", "")); err != nil {
			return outcome{err: err}
		}
	}
	return outcome{err: r.release(ctx, pod)}
}

// sweep deletes a ShadowPod whose home pod is proven gone.
func (r *runner) sweep(ctx context.Context, k key, shadow *shadowPod) outcome {
	home := shadow.Spec.Home
	pod, err := r.getHomePod(ctx, home.Namespace, home.Name)
	if err != nil {
		return outcome{err: err}
	}
	if pod != nil && pod.UID == home.UID {
		// The home pod exists, on whatever node: the informer is behind, or another RemoteCluster
		// reaches the same cluster, and its session serves that pod.
		return outcome{after: lookAgain}
	}
	return outcome{err: r.end(ctx, k, shadow, nil), after: lookAgain}
}

// getHomePod reads a home pod from the API server; nil if it does not exist.
func (r *runner) getHomePod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := r.config.Home.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case absent(err, name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// createOrWait creates the ShadowPod of a home pod, unless a claim of it cannot be used in the remote
// cluster: that is no failure, and is looked at again later.
func (r *runner) createOrWait(ctx context.Context, k key, o decide.Observation) outcome {
	err := r.create(ctx, k, o)
	var stays *staysHomeError
	if !errors.As(err, &stays) {
		r.states.setStaysHome(k, "")
		return andAgain(err)
	}
	r.states.setStaysHome(k, stays.text)
	return outcome{again: stays.text != o.StaysHome, after: claimsAgain}
}

// replace deletes a home pod for which nothing was started. If it has changed since it was read, it
// is left alone.
func (r *runner) replace(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.config.Home.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete pod %s/%s, so that another is made: %w", pod.Namespace, pod.Name, err)
	}
	r.states.replaced(metav1.GetControllerOf(pod).UID, time.Now())
	return nil
}

// create creates the ShadowPod of a home pod; this does not start the pod yet.
func (r *runner) create(ctx context.Context, k key, o decide.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := r.isGiven(ctx, k, o.Pod.Namespace); err != nil {
		return err
	}
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
	r.states.wroteShadow(k, created)
	return nil
}

// isGiven reads the home namespace and checks that the namespace of the remote cluster is for it.
// The cache may still show an earlier one of the same name.
func (r *runner) isGiven(ctx context.Context, k key, home string) error {
	namespace, err := r.config.Home.CoreV1().Namespaces().Get(ctx, home, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get namespace %s: %w", home, err)
	}
	if known := r.namespaces.of(k.namespace, namespace.UID); !known.Given {
		return errors.New(known.Message)
	}
	return nil
}

// examine reads the ShadowPod that has the name already, to find out whose it is.
func (r *runner) examine(ctx context.Context, k key) error {
	found, err := r.getShadow(ctx, k)
	switch {
	case err != nil:
		return err
	case found == nil:
		return errChanged
	case r.isOf(found, k.uid):
		r.states.wroteShadow(k, found)
		return nil
	case found.Labels[keys.HomeID] == r.session.HomeID:
		// It belongs to an earlier pod of this name, which is reconciled by its own event.
		r.shadowChanged(found, false)
		return errChanged
	}
	return fmt.Errorf("ShadowPod %s in cluster %s belongs to somebody else: choose another name for the pod, or have it removed there", k,
		r.session.Cluster)
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

// start lets the agent create the pod of just this ShadowPod.
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
		r.states.dropShadow(k)
		return fmt.Errorf("change ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	r.states.wroteShadow(k, changed)
	return nil
}

// follow writes the home pod's template into the ShadowPod, if that has not changed.
func (r *runner) follow(ctx context.Context, k key, o decide.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := o.Shadow.DeepCopy()
	wanted.Spec.Pod = o.Template
	changed, err := r.session.Remote.ShadowPods(k.namespace).Update(ctx, wanted, metav1.UpdateOptions{})
	if err != nil {
		r.states.dropShadow(k)
		return fmt.Errorf("change ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	r.states.wroteShadow(k, changed)
	return nil
}

// end deletes a ShadowPod, after it has written the grace period of its pod. For a ShadowPod that
// is being deleted already it shortens the period.
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
	err := r.session.Remote.ShadowPods(k.namespace).Delete(ctx, k.name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
	r.states.dropShadow(k)
	if err != nil && !absent(err, k.name) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete ShadowPod %s of cluster %s: %w", k, r.session.Cluster, err)
	}
	return nil
}

// gone asks the remote cluster whether the copy of a home pod is gone. The home pod must have ended
// before: only then nothing can be started any more. An object belongs to this pod if the UIDs say
// so, even if home had another ID when it was created.
func (r *runner) gone(ctx context.Context, k key, pod *corev1.Pod) (bool, error) {
	found, err := r.getShadow(ctx, k)
	if err != nil {
		return false, err
	}
	had, _ := decide.CopyOf(pod)
	if found != nil && (found.UID == had.ShadowUID || (r.isOf(found, k.uid) && found.Spec.Start)) {
		r.states.wroteShadow(k, found)
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

// patch changes a home pod if it has not changed since it was read, and remembers the result.
func (r *runner) patch(ctx context.Context, pod *corev1.Pod, kind types.PatchType, patch map[string]any, subresources ...string) error {
	data, err := encode(patch)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	changed, err := r.config.Home.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return err
	}
	r.states.wroteHome(r.keyOf(pod), changed)
	return nil
}

// ifUnchanged returns the metadata of a patch that fails if the pod has changed.
func ifUnchanged(pod *corev1.Pod) map[string]any {
	return map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
}

// protect adds the finalizer to a home pod.
func (r *runner) protect(ctx context.Context, pod *corev1.Pod) error {
	metadata := ifUnchanged(pod)
	metadata["finalizers"] = []string{keys.RemotePodFinalizer}
	if err := r.patch(ctx, pod, types.StrategicMergePatchType, map[string]any{"metadata": metadata}); err != nil {
		return fmt.Errorf("put finalizer on pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// annotate writes an annotation of a home pod, if the pod has not changed; an empty value removes
// it.
func (r *runner) annotate(ctx context.Context, pod *corev1.Pod, name, value string) error {
	metadata := ifUnchanged(pod)
	metadata["annotations"] = map[string]any{name: nil}
	if value != "" {
		metadata["annotations"] = map[string]any{name: value}
	}
	if err := r.patch(ctx, pod, types.MergePatchType, map[string]any{"metadata": metadata}); err != nil {
		return fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// writeStatus writes the fields of a home pod's status that differ, if the pod has not changed.
func (r *runner) writeStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.Status, status)
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	patch["metadata"] = ifUnchanged(pod)
	if err := r.patch(ctx, pod, types.StrategicMergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func statusPatch(was, is corev1.PodStatus) (map[string]any, error) {
	before, err := json.Marshal(corev1.Pod{Status: was})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{Status: is})
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	return patch, json.Unmarshal(data, &patch)
}

// release removes the finalizer from a home pod and, if the pod is being deleted, completes the
// deletion, as a kubelet does.
func (r *runner) release(ctx context.Context, pod *corev1.Pod) error {
	if decide.Protected(pod) {
		patch := map[string]any{"metadata": map[string]any{"uid": pod.UID,
			"$deleteFromPrimitiveList/finalizers": []string{keys.RemotePodFinalizer}}}
		err := r.patch(ctx, pod, types.StrategicMergePatchType, patch)
		if absent(err, pod.Name) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take finalizer off pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if pod.DeletionTimestamp == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.config.Home.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("end deletion of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// withClaims returns the template of a pod with the real claims that the volumes of its claims
// refer to. It reads the API server of home, never caches: after a move the former claim may still
// exist, with an older copy of the data. No move takes volumes from a home pod that exists, so the
// result stays true.
func (r *runner) withClaims(ctx context.Context, k key, o decide.Observation) (corev1.PodTemplateSpec, error) {
	template, names := *o.Template.DeepCopy(), map[string]string{}
	for i := range template.Spec.Volumes {
		source := template.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := r.realClaim(ctx, o.Pod.Namespace, source.ClaimName)
		if err != nil {
			return template, err
		}
		if err := r.checkClaim(ctx, k, o.Pod.Namespace, source.ClaimName, claim); err != nil {
			return template, err
		}
		names[source.ClaimName] = claim.name
	}
	translate.Rename(&template, names)
	return template, nil
}

// realClaim is the claim in the remote cluster for a claim of home.
type realClaim struct {
	name string
	// owner is the UID of the claim of home; empty if there is none of that name.
	owner types.UID
	// backing is where the volume of that claim says that its data is, nil if it is no virtual volume.
	backing *backing.Ref
}

// staysHomeError says which claim of a pod cannot be used in the remote cluster.
type staysHomeError struct{ text string }

func (e *staysHomeError) Error() string { return e.text }

// checkUsable returns a staysHomeError if a claim is not virtual and nobody has marked it as usable in
// the remote cluster. volume is nil if the claim has none.
func (r *runner) checkUsable(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	if locality.UsableIn(r.session.Cluster, claim, volume, nil) {
		return nil
	}
	name, kind := ptr.Deref(claim.Spec.StorageClassName, ""), "has no storage class"
	if name != "" {
		class, err := r.config.Home.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && locality.UsableIn(r.session.Cluster, claim, volume, class):
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("get storage class %s of claim %s/%s: %w", name, claim.Namespace, claim.Name, err)
		}
		kind = fmt.Sprintf("is of storage class %q, which is not Lodestone's", name)
	}
	return &staysHomeError{text: fmt.Sprintf("claim %q %s, so its volume is not in cluster %s: keep the pod off nodes with label %s, or use "+
		"a claim of a class of Lodestone; if that cluster has a claim of this name, annotate this one with %s=%s", claim.Name, kind,
		r.session.Cluster, keys.Cluster, keys.UsableIn, r.session.Cluster)}
}

// realClaim returns the claim in the remote cluster for a claim of home. If the volume of that is
// not virtual, the name is the same.
func (r *runner) realClaim(ctx context.Context, namespace, name string) (realClaim, error) {
	core := r.config.Home.CoreV1()
	claim, err := core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case absent(err, name):
		return realClaim{name: name}, nil
	case err != nil:
		return realClaim{}, fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	case claim.Spec.VolumeName == "":
		return realClaim{name: name, owner: claim.UID}, r.checkUsable(ctx, claim, nil)
	}
	volume, err := core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return realClaim{}, fmt.Errorf("claim %s/%s has lost its volume %s: the pod starts when it has that again", namespace, name,
			claim.Spec.VolumeName)
	case err != nil:
		return realClaim{}, fmt.Errorf("get volume %s of claim %s/%s: %w", claim.Spec.VolumeName, namespace, name, err)
	case volume.Annotations[keys.Backing] == "":
		return realClaim{name: name, owner: claim.UID}, r.checkUsable(ctx, claim, volume)
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return realClaim{}, fmt.Errorf("volume %s is not, or no longer, that of claim %s/%s", volume.Name, namespace, name)
	}
	ref, err := backing.RefOf(volume)
	if err != nil {
		return realClaim{}, fmt.Errorf("volume %s of claim %s/%s: %w", volume.Name, namespace, name, err)
	}
	return realClaim{name: ref.Name, owner: claim.UID, backing: &ref}, nil
}

// checkClaim says why a pod of home may not mount a claim in the remote cluster, nil if it may. A
// claim that was made for another claim of home may hold data of somebody else: names are given
// again, and so are namespaces.
func (r *runner) checkClaim(ctx context.Context, k key, namespace, name string, claim realClaim) error {
	ref := claim.backing
	if ref != nil && (ref.Cluster != r.session.Cluster || ref.Namespace != k.namespace) {
		return fmt.Errorf("the data of claim %s/%s is not in namespace %s of cluster %s, but in %s of %s: delete the pod, so that another "+
			"is scheduled to its data", namespace, name, k.namespace, r.session.Cluster, ref.Namespace, ref.Cluster)
	}
	there, err := r.session.Client.CoreV1().PersistentVolumeClaims(k.namespace).Get(ctx, claim.name, metav1.GetOptions{})
	switch {
	case absent(err, claim.name):
		return nil // the pod waits there until it exists
	case err != nil:
		return fmt.Errorf("get claim %s/%s of cluster %s: %w", k.namespace, claim.name, r.session.Cluster, err)
	}
	owner := types.UID(there.Labels[keys.ClaimUID])
	if owner == "" || owner == claim.owner || ref != nil && ref.UID == there.UID {
		return nil
	}
	return fmt.Errorf("claim %s/%s of cluster %s was made for another claim than %s/%s (label %s there) and may hold data of somebody else, "+
		"so no pod of this claim mounts it: give the claim another name, or let the owner of the cluster remove what is left of the other",
		k.namespace, claim.name, r.session.Cluster, namespace, name, keys.ClaimUID)
}

// absent reports whether an API server has answered that just the object of this name does not
// exist. A plain "not found" may also mean that the kind of object is unknown, or that another
// server answered.
func absent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name && !slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
