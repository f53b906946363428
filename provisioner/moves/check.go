package moves

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// check ends a dry run of a move that nothing forbids so far: it asks whether the target
// would take the real claims, and says what would happen.
func (c *Controller) check(ctx context.Context, r *record.Record, stops []string) (*record.Record, error) {
	var goes, whole, snapped []string
	for i := range r.Claims {
		if err := c.wouldTake(ctx, r, i); err != nil {
			return judged(r, err)
		}
		known := &r.Claims[i]
		through := ""
		if known.Store != nil {
			through = ", most content through " + known.Store.Place()
		}
		known.Keys, known.Store = nil, nil
		switch {
		case known.Snapshot != nil:
			snapped = append(snapped, known.Name)
		case known.Offline:
			whole = append(whole, known.Name)
		}
		goes = append(goes, fmt.Sprintf("claim %s from %s to %s", known.Name, whereIs(known.Source), whereIs(known.Target)+through))
	}
	r.Phase = v1alpha1.MoveChecked
	r.Began[r.Phase] = r.Began[v1alpha1.MovePrepare]
	r.Why = "would move " + strings.Join(goes, ", ") + "; "
	until := "for the last changes"
	if len(whole) > 0 {
		until = "while all of ReadWriteOncePod claim " + strings.Join(whole, ", ") + " is copied"
	}
	if len(snapped) > 0 && len(stops) > 0 {
		r.Why += fmt.Sprintf("of ReadWriteOncePod claim %s a snapshot would be copied before, and the volume read once in the stop; ", strings.Join(snapped, ", "))
	}
	switch len(stops) {
	case 0:
		r.Why += "no pod uses that now"
	case 1:
		r.Why += "pod " + stops[0] + " would be stopped " + until
	default:
		r.Why += "pods " + strings.Join(stops, ", ") + " would be stopped " + until
	}
	r.Why += "; what is in the volumes is looked at only by a move that has begun, "
	if len(whole) > 0 {
		r.Why += "in a ReadWriteOncePod claim once its pods are stopped"
	} else {
		r.Why += "before anything is stopped"
	}
	return r, nil
}

// wouldTake asks the cluster of a target whether it would admit the real claim; nothing is
// made. A namespace that is yet to be made there cannot be asked.
func (c *Controller) wouldTake(ctx context.Context, r *record.Record, i int) error {
	virtual, err := claimAt(ctx, c.here(), r.Namespace, r.Claims[i].Name)
	if err != nil {
		return err
	}
	if virtual == nil || virtual.UID != r.Claims[i].UID {
		return refuse("claim %q was deleted", r.Claims[i].Name)
	}
	wanted, err := c.targetClaim(r, i, virtual)
	if err != nil {
		return refuse("%v", err)
	}
	at, err := c.must(r.Claims[i].Target.Ref.Cluster)
	if err != nil {
		return err
	}
	_, err = at.Client.CoreV1().PersistentVolumeClaims(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err):
		return refuse("%s would not take real claim %s: %s", r.Claims[i].Target.Ref.Cluster, r.Claims[i].Target.Ref.Key(), sentence(err.Error()))
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("ask whether %s would take real claim %s: %w", r.Claims[i].Target.Ref.Cluster, r.Claims[i].Target.Ref.Key(), err)
	}
	return nil
}

// whereIs names the place of a copy.
func whereIs(copied record.Copy) string {
	text := "class " + copied.Class + " in " + copied.Ref.Cluster
	if copied.Node != "" {
		text += " on node " + copied.Node
	}
	return text
}
