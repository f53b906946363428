package replicas

import (
	"context"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// keptVersion is why a version may not go, as its cluster said at a moment.
type keptVersion struct {
	why string
	at  time.Time
}

// whyKept returns why an admission policy or webhook of a cluster refused a request; empty if none did.
func whyKept(cluster string, err error) string {
	if !apierrors.IsForbidden(err) {
		return ""
	}
	for _, denied := range []string{"denied request: ", "denied the request: "} {
		if _, why, ok := strings.Cut(err.Error(), denied); ok {
			return plain(sentence.Of(cluster, why))
		}
	}
	return ""
}

// keep notes why a version may not go.
func (w *activeReplica) keep(version, why string) {
	if w.kept == nil {
		w.kept = map[string]keptVersion{}
	}
	w.kept[version] = keptVersion{why, time.Now()}
}

// keeps returns why versions may not go, and forgets what was said long ago.
func (w *activeReplica) keeps(now time.Time) map[string]string {
	maps.DeleteFunc(w.kept, func(_ string, kept keptVersion) bool { return now.Sub(kept.at) >= decide.KeptFor })
	why := map[string]string{}
	for name, kept := range w.kept {
		why[name] = kept.why
	}
	return why
}

// askKept asks the cluster of the standby which of the versions that nobody wants may go, before one is marked: it can be used until
// then. Its owner may have it keep them for some time. The oldest is asked for first, and those after one that stays do, too.
func (c *Controller) askKept(ctx context.Context, at site.Site, w *activeReplica, o *decide.Observation) error {
	if at.Home || o.Replica == nil || o.Replica.DeletionTimestamp != nil || o.Sealed == nil || o.Moving {
		return nil
	}
	stays := ""
	for _, i := range decide.Surplus(*o) {
		version := &o.Record.Sealed[i]
		if decide.WhyKept(*o, version) != "" {
			continue
		}
		if stays == "" {
			var err error
			if stays, err = c.askWhether(ctx, at, o.Record, version); stays == "" {
				// It goes now, and the next one is asked for after it has.
				return err
			}
		}
		w.keep(version.Name, stays)
	}
	o.Kept = w.keeps(o.Now)
	return nil
}

// askWhether asks the cluster of the standby whether a version may go, with all that it has: why says why not.
func (c *Controller) askWhether(ctx context.Context, at site.Site, r *record.Record, version *record.Version) (why string, err error) {
	for i := range r.Len() {
		has := version.At(i)
		dry := only(has.UID)
		dry.DryRun = []string{metav1.DryRunAll}
		err := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(r.Head.Namespace).Delete(ctx, has.Name, dry)
		if why = whyKept(r.Head.Cluster, err); why != "" {
			return why, nil
		}
		if err := site.IgnoreGone(err, "ask whether snapshot "+has.Name+" may be deleted"); err != nil {
			return "", err
		}
	}
	return "", nil
}
