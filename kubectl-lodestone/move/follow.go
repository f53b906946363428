package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

const (
	// pollInterval is how often the move is read: one user is no load for an API server.
	pollInterval = 300 * time.Millisecond
	// repeat is how often a line is written again where none can be overwritten.
	repeat = 10 * time.Second
)

// screen shows the state of moves: in one line that changes on a terminal, else in
// a line whenever the phase changes.
type screen struct {
	out      io.Writer
	terminal bool
	phase    string
	printed  time.Time
	// told: what the move says of what it accepts was printed.
	told bool
}

func newScreen(out io.Writer) *screen {
	file, ok := out.(*os.File)
	return &screen{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

func (s *screen) show(move *v1alpha1.VolumeMove) {
	if state, _ := outcomeOf(move); state == refused || state == failed || isAlreadyThere(move) { // the message at the end says that
		return
	}
	name := strings.Join(move.Spec.Claims, ", ")
	accepted := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.MoveAccepted)
	if !s.told && accepted != nil && accepted.Message != "" {
		s.print("%s: %s", name, accepted.Message)
		s.told = true
	}
	text := name + ": " + progressLine(move, time.Now())
	switch {
	case s.terminal:
		fmt.Fprintf(s.out, "\r\033[K%s", text)
	case s.phase != string(move.Status.Phase) || time.Since(s.printed) >= repeat:
		fmt.Fprintln(s.out, text)
		s.phase, s.printed = string(move.Status.Phase), time.Now()
	}
}

// print prints a message that is no state.
func (s *screen) print(format string, args ...any) {
	s.done()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// done ends the line that changes.
func (s *screen) done() {
	if s.terminal {
		fmt.Fprint(s.out, "\r\033[K")
	}
}

// follow shows a move until it is done, refused or failed; it returns the move as
// it was last seen.
func follow(ctx context.Context, home *cli.Cluster, out io.Writer, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
	shown := newScreen(out)
	defer shown.done()
	for {
		shown.show(move)
		switch state, why := outcomeOf(move); state {
		case moved, checked:
			return move, nil
		case refused:
			return move, cli.Refuse("%s is not moved: %s", strings.Join(move.Spec.Claims, ", "), why)
		case going:
		case failed:
			if strings.HasSuffix(why, " was deleted") {
				why += withNamespace(ctx, home, move.Namespace)
			}
			return move, fmt.Errorf("%s was not moved: %s", strings.Join(move.Spec.Claims, ", "), why)
		}
		select {
		case <-ctx.Done():
			if move.Spec.DryRun {
				return move, errors.New(goesOnText(move))
			}
			return move, errors.New(goesOnText(move) + abortText(move))
		case <-time.After(pollInterval):
		}
		seen, err := poll(ctx, shown, getter(home, move))
		switch {
		case err == nil && seen.DeletionTimestamp != nil && move.DeletionTimestamp == nil && home.IsDying(ctx, move.Namespace):
			return seen, ended(move)
		case err == nil:
			move = seen
		case ctx.Err() == nil:
			return move, followError(ctx, home, move, err)
		}
	}
}

const (
	// maxUnreadable is how long a failing read is repeated.
	maxUnreadable = 2 * time.Minute
	// retryInterval is the time between two attempts.
	retryInterval = 2 * time.Second
)

// get reads the move that is followed. A move that does not exist is NotFound.
type get func(context.Context) (*v1alpha1.VolumeMove, error)

// getter returns a get of a move by name and UID: another move of that name is NotFound.
func getter(home *cli.Cluster, move *v1alpha1.VolumeMove) get {
	return func(ctx context.Context) (*v1alpha1.VolumeMove, error) {
		seen, err := home.Moves.In(move.Namespace).Get(ctx, move.Name, metav1.GetOptions{})
		if err == nil && seen.UID != move.UID {
			return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("volumemoves").GroupResource(), move.Name)
		}
		return seen, err
	}
}

// poll reads a move, and repeats that for as long as maxUnreadable while the error may pass by
// itself. The provisioner works meanwhile.
func poll(ctx context.Context, shown *screen, read get) (*v1alpha1.VolumeMove, error) {
	var since time.Time
	for {
		move, err := read(ctx)
		switch {
		case err == nil || ctx.Err() != nil || !cli.IsTransient(err):
			return move, err
		case since.IsZero():
			since = time.Now()
			shown.print("the move cannot be seen for now, asking again for %s: %v", replica.Short(maxUnreadable), err)
		case time.Since(since) >= maxUnreadable:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

// followError returns the error for the user when a move cannot be followed any more.
func followError(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove, err error) error {
	switch {
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("%w; %s", home.Explain("get VolumeMove "+move.Namespace+"/"+move.Name, err), goesOnText(move))
	case home.IsDying(ctx, move.Namespace):
		return ended(move)
	}
	rest := " and the copy at the source is removed"
	if move.Spec.Failover != nil || move.Spec.Adopt != "" {
		rest = "" // what the claims had before stays
	}
	return fmt.Errorf("VolumeMove %s/%s was deleted: if it was not committed, its claims go back to the source; if it was, they stay at the "+
		"target%s; kubectl get events -n %s shows which", move.Namespace, move.Name, rest, move.Namespace)
}

// ended is the error for a move whose namespace is being deleted, or is gone: there is nothing to wait for, and nothing to do.
func ended(move *v1alpha1.VolumeMove) error {
	return fmt.Errorf("the move of %s ends, because namespace %s was deleted, and its claims with it: what the move has made elsewhere is "+
		"removed by itself", strings.Join(move.Spec.Claims, ", "), move.Namespace)
}

// withNamespace adds to what is being deleted that its namespace is, too; empty if that is not so.
func withNamespace(ctx context.Context, home *cli.Cluster, name string) string {
	if !home.IsDying(ctx, name) {
		return ""
	}
	return fmt.Sprintf(" with namespace %s", name)
}

// requireLiving refuses to begin a move in a namespace that is being deleted, where it would end at once.
func requireLiving(ctx context.Context, home *cli.Cluster, move *v1alpha1.VolumeMove) error {
	if home.IsDying(ctx, move.Namespace) {
		return cli.Refuse("namespace %s is being deleted, and its claims and moves with it: nothing is moved in it any more", move.Namespace)
	}
	return nil
}

// goesOnText returns the sentence that the move continues after the end of the command.
func goesOnText(move *v1alpha1.VolumeMove) string {
	if move.Spec.DryRun {
		return "nothing is moved, since this was a dry run: give the same command again"
	}
	if move.DeletionTimestamp != nil {
		return "the move was deleted, and ends by itself"
	}
	return fmt.Sprintf("the move goes on: kubectl lodestone move status %s -n %s shows it", move.Name, move.Namespace)
}

// abortText returns how to end a move, for the end of a sentence; empty where that is no longer to be done.
func abortText(move *v1alpha1.VolumeMove) string {
	if move.DeletionTimestamp != nil || committed(move) {
		return ""
	}
	return fmt.Sprintf(", kubectl lodestone move abort %s -n %s ends it", move.Name, move.Namespace)
}

// sums are the numbers of all claims of a move.
type sums struct{ bytes, total, files, filesTotal, rate int64 }

func sumOf(status v1alpha1.VolumeMoveStatus) (s sums) {
	for _, claim := range status.Claims {
		s.bytes += claim.Bytes
		s.total += claim.BytesTotal
		s.files += claim.Files
		s.filesTotal += claim.FilesTotal
		s.rate += claim.Rate
	}
	return s
}

// takenUpIn is how long the provisioner may take to say something of a new move before somebody is asked to look at it.
const takenUpIn = 30 * time.Second

func progressLine(move *v1alpha1.VolumeMove, now time.Time) string {
	status := move.Status
	phase := string(status.Phase)
	if phase == "" {
		if status.Message != "" {
			return status.Message
		}
		text := "waiting for the provisioner to begin the move"
		if made := move.CreationTimestamp; !made.IsZero() && now.Sub(made.Time) > takenUpIn {
			text += ": see whether it runs (kubectl get pods -n lodestone-system)"
		}
		return text
	}
	pass := int32(0)
	for _, claim := range status.Claims {
		pass = max(pass, claim.Pass)
	}
	s := sumOf(status)
	switch {
	case status.Phase == v1alpha1.MovePreCopy && pass > 0:
		phase = fmt.Sprintf("%s, pass %d", phase, pass)
		fallthrough
	case status.Phase == v1alpha1.MoveFinalSync || status.Phase == v1alpha1.MoveVerifying:
		if s.total > 0 {
			return fmt.Sprintf("%-15s %s%s", phase, progressBar(s), routeSuffix(status))
		}
	}
	if status.Message != "" {
		return fmt.Sprintf("%-15s %s", phase, status.Message)
	}
	return phase
}

// progressBar shows a bar, what is done of what, how fast, and the time left.
func progressBar(s sums) string {
	done := min(max(float64(s.bytes)/float64(s.total), 0), 1)
	const width = 24
	full := int(done * width)
	text := fmt.Sprintf("[%s%s] %3.0f %%  %s of %s", strings.Repeat("#", full), strings.Repeat(".", width-full), done*100,
		sentence.Size(s.bytes), sentence.Size(s.total))
	if s.rate > 0 {
		text += fmt.Sprintf("  %s/s", sentence.Size(s.rate))
		if left := time.Duration(float64(s.total-s.bytes) / float64(s.rate) * float64(time.Second)); left > 0 {
			text += fmt.Sprintf("  %s left", left.Round(time.Second))
		}
	}
	return text
}

// outcome is the state of a move for a user who waits for it.
type outcome int

const (
	going outcome = iota
	moved
	refused
	failed
	checked
)

// outcomeOf returns whether there is something to wait for, and if not, a sentence why.
func outcomeOf(move *v1alpha1.VolumeMove) (outcome, string) {
	status := move.Status
	accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.MoveAccepted)
	switch {
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.MoveCommitted) &&
		oneOf(status.Phase, v1alpha1.MoveRetain, v1alpha1.MoveFinalize, v1alpha1.MoveDone):
		return moved, ""
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		return refused, accepted.Message
	case status.Phase == v1alpha1.MoveChecked:
		return checked, status.Message
	case oneOf(status.Phase, v1alpha1.MoveFailed, v1alpha1.MoveAborted):
		return failed, status.Message
	}
	return going, ""
}

// isAlreadyThere says whether a move was refused because there is nothing to move.
func isAlreadyThere(move *v1alpha1.VolumeMove) bool {
	accepted := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.MoveAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.Reason == v1alpha1.MoveAlreadyThere
}

// report returns a sentence on the result of a move that is done.
func report(move *v1alpha1.VolumeMove) string {
	status := move.Status
	text, is := "claim ", " is"
	if len(move.Spec.Claims) > 1 {
		text, is = "claims ", " are"
	}
	text += strings.Join(move.Spec.Claims, ", ")
	if status.Target != nil {
		text += is + " now in cluster " + status.Target.Cluster
	}
	if status.Downtime != nil {
		text += fmt.Sprintf("; pods could not use it for %s", status.Downtime.Round(10*time.Millisecond))
	}
	if move.Spec.Failover != nil {
		return text + failedOver(move)
	}
	if move.Spec.Adopt != "" {
		return text + "; the older copy is kept"
	}
	if status.Phase == v1alpha1.MoveRetain && move.Spec.KeepSourceFor != nil {
		text += fmt.Sprintf("; the copy at the source is kept for %s (kubectl lodestone move finalize %s -n %s removes it now)",
			replica.Short(move.Spec.KeepSourceFor.Duration), move.Name, move.Namespace)
	}
	return text
}
