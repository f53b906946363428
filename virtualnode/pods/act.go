package pods

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

// errBehind says that a decision was made on what is no longer so.
var errBehind = errors.New("it has changed since it was read")

// passing says whether an error goes away by itself.
func passing(err error) bool { return errors.Is(err, errBehind) || apierrors.IsConflict(err) }

// act takes one step.
func (r *runner) act(ctx context.Context, k key, o decide.Observation, step decide.Step) outcome {
	switch step.Verb {
	case decide.Refuse:
		return r.refuse(ctx, o, step)
	case decide.Protect:
		return then(r.protect(ctx, o.Pod))
	case decide.Create:
		return then(r.create(ctx, k, o))
	case decide.Record:
		copied := decide.Copy{ClusterUID: o.ClusterUID, ShadowUID: o.Shadow.UID, Namespace: k.namespace}
		return then(r.annotate(ctx, o.Pod, keys.RemoteCopy, copied.String()))
	case decide.Start:
		return then(r.start(ctx, k, o.Shadow))
	case decide.Follow:
		return then(r.follow(ctx, k, o))
	case decide.Report, decide.Fail:
		return then(r.writeStatus(ctx, o.Pod, step.Status))
	case decide.Annotate:
		return then(r.annotate(ctx, o.Pod, keys.RemoteIP, step.Address))
	case decide.Lose:
		return r.lose(ctx, k, o)
	case decide.End:
		return outcome{err: r.end(ctx, k, o.Shadow, step.Grace), after: safetyNet}
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

// then is the outcome of a step after which there is another one.
func then(err error) outcome { return outcome{err: err, again: err == nil} }

// refuse marks a pod as failed. That its namespace is closed is asked again,
// for it may have been opened a moment ago.
func (r *runner) refuse(ctx context.Context, o decide.Observation, step decide.Step) outcome {
	if !o.Open {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		namespace, err := r.config.Home.CoreV1().Namespaces().Get(ctx, o.Pod.Namespace, metav1.GetOptions{})
		if err != nil {
			return outcome{err: fmt.Errorf("get namespace %s: %w", o.Pod.Namespace, err)}
		}
		if namespaces.MayUse(namespace, r.session.Cluster) {
			return outcome{err: errBehind}
		}
	}
	return then(r.writeStatus(ctx, o.Pod, step.Status))
}

// lose marks a home pod as failed whose ShadowPod and pod are proven gone, though
// nobody here deleted them.
func (r *runner) lose(ctx context.Context, k key, o decide.Observation) outcome {
	gone, err := r.gone(ctx, k, o.Pod)
	if err != nil || !gone {
		return outcome{err: err, after: safetyNet}
	}
	text := fmt.Sprintf("the ShadowPod and the pod were deleted in cluster %s", r.session.Cluster)
	status := decide.Failed(o.Pod, "RemotePodGone", text)
	r.tell(k, o.Pod, &decide.Message{Warning: true, Reason: "RemotePodGone", Text: text})
	return then(r.writeStatus(ctx, o.Pod, status))
}

// finish lets a home pod go that has ended, once its copy is proven gone.
func (r *runner) finish(ctx context.Context, k key, o decide.Observation) outcome {
	gone, err := r.gone(ctx, k, o.Pod)
	if err != nil || !gone {
		return outcome{err: err, after: safetyNet}
	}
	pod := o.Pod
	if len(pod.Finalizers) > 1 && !decide.Ended(pod) {
		// Whoever holds it waits to see how it ended.
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
		// It is an owner, on whatever node: the informer is behind, or another
		// RemoteCluster leads here too, whose session looks after it.
		return outcome{after: safetyNet}
	}
	return outcome{err: r.end(ctx, k, shadow, nil), after: safetyNet}
}

// getHomePod asks for a home pod; nil when it does not exist.
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
