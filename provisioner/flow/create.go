package flow

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// create creates the backing claim of a route and sorts what came of it.
func (f *Flow) create(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	client, err := f.client(step.Cluster)
	if err != nil {
		result.err = err
		return result
	}
	owner := types.NamespacedName{Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	at := f.Place.Of(keys.Home, "", owner, o.UID)
	if step.Cluster != keys.Home {
		remote, cluster := f.Clusters.Object(step.Cluster), f.Clusters.Get(step.Cluster)
		if remote == nil || cluster == nil {
			result.err = errNoClient
			return result
		}
		at = f.Place.Of(step.Cluster, remote.Spec.Namespaces.Strategy, owner, o.UID)
		if err := cluster.RecordNamespace(ctx, at.Namespace); err != nil {
			result.err = err
			return result
		}
	}
	refused, err := f.unmakeable(ctx, client, o, step, at)
	switch {
	case err != nil:
		f.suspect(step.Cluster)
		result.err = err
		return result
	case refused != nil:
		return f.refuse(ctx, o, refused, result)
	}
	wasUnsent := f.memory.isUnsent(o.UID)
	f.memory.setUnsent(o.UID, false)
	claim := backing.New(o.Claim, step.Route, at, f.Place.HomeID)
	if class, err := virtualclass.Parse(o.Class); err == nil {
		backing.Carry(claim, o.Claim, class)
	}
	claim, err = client.CoreV1().PersistentVolumeClaims(at.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err == nil && claim.Namespace == at.Namespace && claim.Name == at.Name {
		f.written.set(o.UID, step.Cluster, nil, claim)
	}
	if apierrors.IsAlreadyExists(err) {
		err = f.examine(ctx, client, o, at)
	}
	sorted := sortCreateError(err, step.Cluster, at, given{
		asked: o.Cluster(step.Cluster).Mapped.Asked, fresh: f.queue.NumRequeues(o.UID) < freshAttempts})
	switch {
	case sorted.refusal != nil:
		return f.refuse(ctx, o, sorted.refusal, result)
	case sorted.retry != nil:
		if wasUnsent && sorted.unsent {
			f.memory.setUnsent(o.UID, true)
		}
		f.suspect(step.Cluster)
		result.err = fmt.Errorf("create backing claim %s in %s: %w", at, step.Cluster, sorted.retry)
	default:
		if cluster := f.Clusters.Get(step.Cluster); cluster != nil {
			cluster.Expect(at.Namespace)
		}
		result.after = safetyNet
	}
	return result
}

// unmakeable says why the cluster of a route cannot take the backing claim, as
// far as that is known only when it is about to be made; nil if it may.
func (f *Flow) unmakeable(ctx context.Context, client kubernetes.Interface, o decide.Observation, step decide.Step, at types.NamespacedName) (*decide.Refusal, error) {
	if source := step.Route.Source; source.Name != "" && source.Namespace != at.Namespace {
		// The RemoteCluster maps namespaces otherwise than when the source was made.
		return &decide.Refusal{Cluster: step.Cluster, Reason: "SourceInOtherNamespace", Message: fmt.Sprintf(
			"real claim %s, which this one is to be a copy of, is not in namespace %s of cluster %s, where the copy would be: copy the data with a pod", source, at.Namespace, step.Cluster)}, nil
	}
	return f.attributes(ctx, client, step.Cluster, o.Claim, step.Route.Driver())
}

// refuse sends a claim elsewhere that has no backing claim.
func (f *Flow) refuse(ctx context.Context, o decide.Observation, refused *decide.Refusal, result outcome) outcome {
	f.tell(o, &decide.Message{Warning: true, Reason: refused.Reason, Text: refused.Message})
	result.err = f.reschedule(ctx, o, refused)
	f.wakeSiblings(o)
	return result
}
