package move

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const (
	// patience is how long an API server that does not answer as it should is asked again.
	patience = 2 * time.Minute
	// pause is how long is waited before that.
	pause = 2 * time.Second
)

// get reads the move that is looked at. One that is not there is NotFound.
type get func(context.Context) (*v1alpha1.VolumeMove, error)

// getter reads a move: not another one of its name.
func getter(home *access.Cluster, move *v1alpha1.VolumeMove) get {
	return func(ctx context.Context) (*v1alpha1.VolumeMove, error) {
		seen, err := home.Moves.In(move.Namespace).Get(ctx, move.Name, metav1.GetOptions{})
		if err == nil && seen.UID != move.UID {
			return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("volumemoves").GroupResource(), move.Name)
		}
		return seen, err
	}
}

// look reads a move, again and again for as long as patience lasts while it fails for what
// may pass. The provisioner works meanwhile.
func look(ctx context.Context, shown *screen, read get) (*v1alpha1.VolumeMove, error) {
	var since time.Time
	for {
		move, err := read(ctx)
		switch {
		case err == nil || ctx.Err() != nil || !passes(err):
			return move, err
		case since.IsZero():
			since = time.Now()
			shown.note("the move cannot be seen for now, asking again for %s: %v", patience, err)
		case time.Since(since) >= patience:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// passes says whether what a request failed for may pass by itself: no answer, or that of
// an API server that cannot answer now.
func passes(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	code := answer.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// unseen says what it means that a move cannot be followed any more.
func unseen(home *access.Cluster, move *v1alpha1.VolumeMove, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("VolumeMove %s/%s was deleted: by itself a move that is not committed then goes back to the source, and one that is comes to its end; see kubectl get events -n %s, and move again if the claims are to be elsewhere",
			move.Namespace, move.Name, move.Namespace)
	}
	return fmt.Errorf("%w; %s", home.Explain("get VolumeMove "+move.Namespace+"/"+move.Name, err), goesOn(move))
}

// goesOn says that the end of the command is not that of the move.
func goesOn(move *v1alpha1.VolumeMove) string {
	if move.Spec.DryRun {
		return "nothing is moved, for it was a dry run: give the same command again"
	}
	return fmt.Sprintf("the move goes on: kubectl lodestone move status %s -n %s shows it", move.Name, move.Namespace)
}
