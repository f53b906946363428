package replicas

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// readSealed reads the snapshots of a replica at its standby, and what is wrong with them. It leaves both nil if that does not serve them
// now: what it has is not gone then.
func (c *Controller) readSealed(ctx context.Context, at site.Site, w *activeReplica, o *decide.Observation) error {
	if at.Dynamic == nil {
		return nil
	}
	r := o.Record
	sealed, listed := map[string]types.UID{}, map[string]*unstructured.Unstructured{}
	of := metav1.ListOptions{LabelSelector: keys.ReplicaOf + "=" + string(r.UID) + "," + keys.HomeID + "=" + c.Place.HomeID}
	err := site.EachPage(ctx, of, at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(r.Head.Namespace).List,
		func(page *unstructured.UnstructuredList) {
			for i := range page.Items {
				if page.Items[i].GetDeletionTimestamp() == nil {
					sealed[page.Items[i].GetName()] = page.Items[i].GetUID()
					listed[page.Items[i].GetName()] = &page.Items[i]
				}
			}
		})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list snapshots at the standby: %w", err)
	}
	faults := map[string]decide.Fault{}
	for _, version := range w.versionsToLookAt(r) {
		for i := range r.Len() {
			has := version.At(i)
			if sealed[has.Name] != has.UID {
				continue
			}
			fault, known, err := faultOf(ctx, at, has, listed[has.Name])
			if err != nil {
				return err
			}
			if known {
				faults[has.Name] = fault
			}
		}
	}
	o.Sealed, o.Faults = sealed, faults
	return nil
}

// versionsToLookAt returns the versions of which the content is looked at now: the newest one, which the next failover takes, and the
// others in turn, one each time. There may be a thousand.
func (w *activeReplica) versionsToLookAt(r *record.Record) (versions []*record.Version) {
	if len(r.Sealed) == 0 {
		return nil
	}
	newest := r.Newest()
	if newest != nil {
		versions = append(versions, newest)
	}
	w.looks++
	if next := &r.Sealed[w.looks%len(r.Sealed)]; next != newest && !next.Going {
		versions = append(versions, next)
	}
	return versions
}

// faultOf looks at a snapshot that is part of a version, and at its content. That says what the storage has: its users may write the
// status of a snapshot. known is false if home may not look at contents there.
func faultOf(ctx context.Context, at site.Site, has *record.Content, object *unstructured.Unstructured) (f decide.Fault, known bool,
	err error) {
	s, err := volumesnapshot.Read[volumesnapshot.Snapshot](object)
	if err != nil {
		return f, false, err
	}
	if !at.Home {
		remote.TrustedSnapshot(s)
	}
	name := ptr.Deref(s.Status.ContentName, "")
	if name == "" {
		return decide.Fault{Why: "it names no VolumeSnapshotContent"}, true, nil
	}
	content, problem, wrong, err := frozen.Content(ctx, at, name)
	switch {
	case err != nil:
		return f, false, err
	case wrong:
		return f, false, nil
	case content == nil:
		return decide.Fault{Why: problem, Gone: true}, true, nil
	case !volumesnapshot.BelongTo(s, content) || !frozen.IsOf(has.Volume, content):
		f.Why = fmt.Sprintf("VolumeSnapshotContent %s is not its own: see who made it", plain(name))
	case !ptr.Deref(content.Status.ReadyToUse, false):
		f.Why = "its VolumeSnapshotContent is not ready" + sentence.Prefixed(": ", failureOf(content.Status.Error))
	case !ptr.Deref(s.Status.ReadyToUse, false):
		f.Why = "it is not ready" + sentence.Prefixed(": ", failureOf(s.Status.Error))
	}
	return f, true, nil
}

// failureOf returns what a failure says, empty for none.
func failureOf(failure *volumesnapshot.Failure) string {
	if failure == nil {
		return ""
	}
	return plain(ptr.Deref(failure.Message, ""))
}
