// Package moves moves the data of claims to other clusters, classes and nodes while their
// applications run. Controller observes each move through API servers and movers
// (observe.go, users.go, copies.go), package decide chooses the next step, and act.go takes
// it; the state of a move is a record (records.go, package record). inspect.go judges a
// VolumeMove before it begins. Start with controller.go, which is long because moves that wait
// for their turn and moves that are worked on are two queues that hand moves to each other.
package moves

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	claimsteps "github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
)

const (
	// stepTimeout limits one observation of a move and its step.
	stepTimeout = 30 * time.Second
	// retryAfter is the pause after a failed step.
	retryAfter = 500 * time.Millisecond
	// workers is how many moves are processed in parallel: those that wait for a cluster
	// that does not answer delay no others.
	workers = 512
)

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Home is the client configuration of the home cluster.
	Home *rest.Config
	// Dynamic reads and writes the VolumeSnapshots of the home cluster.
	Dynamic dynamic.Interface
	// Moves reads and writes VolumeMoves; Objects is their informer, which the caller runs.
	Moves   *clients.VolumeMoveClient
	Objects cache.SharedIndexInformer
	// Claims, Volumes, Pods and Namespaces are informers on the home cluster.
	Claims, Volumes, Pods, Namespaces cache.SharedIndexInformer
	// LabelSpaces says that namespaces in which claims are locked are labelled, for a gate that is a webhook.
	LabelSpaces bool
	Clusters    *remote.Clusters
	Records     *Records
	Place       backing.Place
	// Namespace is the provisioner's namespace, which has its records.
	Namespace string
	// Image is the image of the movers.
	Image string
	// Scratch is how many bytes a mover may store on the disk of its node; 0: depends on
	// the size of its volume.
	Scratch int64
	// Margin is for how long after its grace period a force-deleted pod may still run.
	Margin time.Duration
	// Settling is for how long after a move pods are still observed: an API server that had
	// not yet seen the release of the claims may have added the gate.
	Settling time.Duration
	// Limits are how many moves may be under way at once.
	Limits turns.Limits
	// Networks are those in which movers may dial each other.
	Networks transport.Networks
	Recorder events.EventRecorder
	// Metrics counts what happens to moves; nil: nothing is counted.
	Metrics *Metrics
	// Class, Node and Space return home objects from caches, nil if there are none.
	Class func(name string) *storagev1.StorageClass
	Node  func(name string) *corev1.Node
	Space func(name string) *corev1.Namespace
	// StandIns returns the home nodes that represent a remote cluster, from the cache.
	StandIns func(cluster string) []*corev1.Node
	// Replica returns the record of a replica by its name, nil if there is none.
	Replica func(namespace, name string) *replica.Record
	// Having returns the records of the replicas that have their versions of a claim in a cluster.
	Having func(claim types.UID, cluster string) []*replica.Record
	// View returns the state of a cluster for claims of a home namespace.
	View func(cluster, namespace string) claimsteps.Cluster
	// Released is called for each claim that a move has released. It must not block.
	Released func(claim types.UID)
}

// Controller moves volumes.
type Controller struct {
	Config
	sites   site.Sites
	queue   *controller.Queue[moveKey]
	line    *line
	marks   marks
	spaces  spaces
	copier  *copying.Copier
	targets copying.Targets
	witness witness.Witness
	mu      sync.Mutex
	active  map[types.UID]*activeMove
}

// moveKey is the key of a move; the UID distinguishes it from another one of the same name.
type moveKey struct {
	types.NamespacedName
	uid types.UID
}

// activeMove is the in-memory state of one move. Only the worker that has its key uses it, but for woken.
type activeMove struct {
	moveKey
	// woken says that something has changed that is watched.
	woken     atomic.Bool
	looked    look
	record    *stored
	lastPhase string
	waiting   waiting
	// claims are kept by index.
	claims   map[int]*activeClaim
	watchers witness.Watchers
	steps    repeated
	// refusedGroup is the reason for which one snapshot of several claims was refused.
	refusedGroup string
	// progress is kept in memory only: after a restart copies get their full time again.
	progress progress
	failing  failing
	keyless  copying.Keyless
}

// activeClaim is the in-memory state of a claim of a move.
type activeClaim struct {
	// link are the connections of its movers.
	link *copying.Link
	// refused is the reason for which an API server refused a snapshot of the claim, or a claim made from that.
	refused string
	// noBasis is the reason for which an API server refused a target that begins with a version.
	noBasis string
}

func (w *activeMove) claim(i int) *activeClaim {
	if w.claims == nil {
		w.claims = map[int]*activeClaim{}
	}
	if w.claims[i] == nil {
		w.claims[i] = &activeClaim{link: &copying.Link{}}
	}
	return w.claims[i]
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	if config.Metrics == nil {
		config.Metrics = NewMetrics(nil)
	}
	queue := controller.NewQueue[moveKey](controller.QueueConfig{
		// A step that has begun is finished even when Run ends.
		Name: "moves", FirstRetry: retryAfter, LastRetry: retryAfter, Timeout: stepTimeout, FinishSteps: true,
	})
	home := remote.Access{Client: config.Client, Config: config.Home, Dynamic: config.Dynamic}
	sites := site.New(home, config.Clusters)
	return &Controller{Config: config, sites: sites, line: newLine(config.Limits, config.Records), marks: newMarks(), spaces: newSpaces(),
		active: map[types.UID]*activeMove{}, queue: queue, copier: &copying.Copier{Sites: sites, Networks: config.Networks},
		targets: copying.Targets{Class: config.Class, Space: config.Space, View: config.View},
		witness: witness.Witness{Sites: sites, HomeID: config.Place.HomeID, Node: config.Node, Memory: &witness.Memory{}}}
}

// Targets say where copies may go.
func (c *Controller) Targets() copying.Targets { return c.targets }

// Witness makes the controller record how home pods end. Call it also before this process
// leads: it must know that when it starts to lead.
func (c *Controller) Witness(pods cache.SharedIndexInformer) error {
	return c.witness.Memory.Watch(pods)
}

// Run works until ctx ends. Call it after Load has succeeded and Objects is synced.
func (c *Controller) Run(ctx context.Context) error {
	c.fillLine()
	c.advance()
	unwatch, err := controller.Watch(c.Objects, c.moveChanged)
	if err != nil {
		return err
	}
	unwatchObjects, err := c.watchObjects()
	if err != nil {
		return err
	}
	for _, known := range c.Records.all() {
		c.queue.Add(keyOf(known))
	}
	var beside sync.WaitGroup
	beside.Go(func() { c.runSweep(ctx) })
	beside.Go(func() { c.marks.queue.Run(ctx, markWorkers, c.syncMarks) })
	beside.Go(func() { c.runLine(ctx) })
	var unlabelled error
	if c.LabelSpaces {
		beside.Go(func() { unlabelled = c.runSpaces(ctx) })
	}
	c.queue.Run(ctx, workers, c.sync)
	beside.Wait()
	for _, w := range c.active {
		w.close()
	}
	errs := []error{unwatch(), unlabelled}
	for _, unwatch := range unwatchObjects {
		errs = append(errs, unwatch())
	}
	return errors.Join(errs...)
}

// sync takes the next step of a move, and drops its state once nothing is left of it.
func (c *Controller) sync(ctx context.Context, key moveKey) (after time.Duration, err error) {
	if in, begins := c.line.stands(key.uid); in && !begins {
		return 0, nil
	}
	if c.isDone(key) {
		return 0, nil
	}
	logger := klog.FromContext(ctx).WithValues("move", key.NamespacedName, "moveUID", key.uid)
	ctx = klog.NewContext(ctx, logger)
	w := c.moveOf(key)
	after, gone, err := c.lookAndAct(ctx, w)
	if err != nil {
		// Logged here at a low level, not by the queue: the VolumeMove shows it, and
		// clusters may be unreachable for long.
		logger.V(2).Info("Will be tried again", "err", err)
		w.record = nil
		return retryAfter, nil
	}
	if c.Records.has(key.uid) || gone {
		if c.line.leave(key.uid) {
			c.advance()
		}
	}
	if gone {
		w.close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.active, key.uid)
	}
	return after, nil
}

func (c *Controller) moveOf(key moveKey) *activeMove {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.active[key.uid]
	if w == nil {
		w = &activeMove{moveKey: key}
		c.active[key.uid] = w
	}
	return w
}

// noteChange has a move looked at whole next time. One that was not looked at yet is so anyway.
func (c *Controller) noteChange(move types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.active[move]; w != nil {
		w.woken.Store(true)
	}
}

// close stops what runs between the steps of a move.
func (w *activeMove) close() {
	w.closeLinks()
	w.watchers.Close()
}

// maxOnOne is how many steps are taken on one observation at most: what was seen is not to get old.
const maxOnOne = 5

// lookAndAct observes a move and takes the next step, and further ones that decide.GoesOn allows. after is the time until the next
// call, 0: when something changes; gone says that nothing is left of the move.
func (c *Controller) lookAndAct(ctx context.Context, w *activeMove) (after time.Duration, gone bool, err error) {
	if o, ok := c.glance(ctx, w); ok {
		if step := decide.Next(o); step.Action == nil {
			c.Metrics.observe(w.uid, o, step)
			w.looked.o.Move = c.report(ctx, w, o, step)
			return decide.Pace(o, step, w.waiting.since), false, nil
		}
	}
	o, err := c.observe(ctx, w)
	if err != nil {
		c.report(ctx, w, o, steps.Step{Say: "waiting until this can be read: " + err.Error()})
		return 0, false, err
	}
	_, o.MayBegin = c.line.stands(w.uid)
	if o.Record == nil && o.Move == nil {
		c.Metrics.observe(w.uid, o, steps.Step{})
		return 0, true, nil
	}
	for taken := 1; ; taken++ {
		o.Failing, o.FailingWhy = w.failing.since, w.failing.why
		step := decide.Next(o)
		if taken > 1 && step.Action == nil {
			// What it waits for may have come since.
			return after, false, nil
		}
		if o.Record == nil && step.Action == nil {
			if !decide.IsFinished(o.Move) {
				// It waits for its turn; nothing else is known of it.
				c.line.join(o.Move)
				c.advance()
				return 0, false, nil
			}
			c.reportFinished(ctx, o.Move)
			return step.After, true, nil
		}
		failed, err := c.act(ctx, w, o, step)
		if w.failing.note(o.Now, err); err != nil {
			c.report(ctx, w, o, steps.Step{Say: fmt.Sprintf("%s is tried again: %v", failed, err)})
			return 0, false, err
		}
		c.reportTaken(o, step)
		goesOn := decide.GoesOn(o, step.Saved())
		if step.Saved() != nil {
			c.reportGivenUp(o, step)
			o.Record = w.record.record
		}
		c.Metrics.observe(w.uid, o, step)
		o.Move = c.report(ctx, w, o, step)
		if step.Action == nil {
			w.looked.o.Move, w.looked.waits = o.Move, true
			return decide.Pace(o, step, w.waiting.since), false, nil
		}
		if after = w.steps.pause(o, step); !goesOn || taken == maxOnOne {
			return after, false, nil
		}
	}
}

const (
	// tellRate is how many waiting moves a second are told where they stand, tellBurst how
	// many at once: hundreds of moves stand elsewhere whenever one begins, and telling five of
	// them a second made everybody's claims slower by more than 10 %.
	tellRate, tellBurst = 1, 10
)

// line has the moves without a record, each until it has one: those that wait for their turn,
// and those whose turn it is. It is safe for concurrent use.
type line struct {
	limits  turns.Limits
	records *Records
	// changed has a value when places may have changed.
	changed chan struct{}

	mu    sync.Mutex
	moves map[types.UID]*queued
	// lanes are those of moves and of dry runs: these end at once, and so wait for each
	// other alone.
	lanes [2]lane
}

// lane has the turns of moves of one kind.
type lane struct {
	served map[string]int64
	last   int64
}

// queued is a move in the line.
type queued struct {
	turns.Move
	lane int
	// begins says that it is its turn.
	begins bool
	// told is the message about its place that its status has.
	told string
}

func newLine(limits turns.Limits, records *Records) *line {
	l := &line{limits: limits, records: records, changed: make(chan struct{}, 1), moves: map[types.UID]*queued{}}
	for i := range l.lanes {
		l.lanes[i].served = map[string]int64{}
	}
	return l
}

// join puts a move into the line if it is not there, and notes what its status says.
func (l *line) join(move *v1alpha1.VolumeMove) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.moves[move.UID]
	if q == nil {
		q = &queued{Move: turns.Move{UID: move.UID, Namespace: move.Namespace, Name: move.Name, Created: move.CreationTimestamp.Time}}
		if move.Spec.DryRun {
			q.lane = 1
		}
		l.moves[move.UID] = q
	}
	q.told = move.Status.Message
}

// leave takes a move out of the line, and says whether it was in it.
func (l *line) leave(move types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, was := l.moves[move]
	delete(l.moves, move)
	return was
}

// stands says whether a move is in the line, and whether it is its turn.
func (l *line) stands(move types.UID) (in, begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.moves[move]
	return q != nil, q != nil && q.begins
}

// served notes that a namespace had a turn, before this process began.
func (l *line) served(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lanes[0].serve(namespace)
}

func (l *lane) serve(namespace string) {
	l.last++
	l.served[namespace] = l.last
}

// advance gives moves their turn and returns them.
func (l *line) advance() (begin []turns.Move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		for _, move := range turns.Next(l.limits, l.state(i)) {
			l.moves[move.UID].begins = true
			l.lanes[i].serve(move.Namespace)
			begin = append(begin, move)
		}
	}
	if len(l.moves) == 0 {
		// What was before does not matter to anybody.
		for i := range l.lanes {
			clear(l.lanes[i].served)
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return begin
}

// state is what the turns of a lane depend on; the caller holds the lock.
func (l *line) state(i int) turns.State {
	s := turns.State{Active: map[string]int{}, Served: l.lanes[i].served}
	if i == 0 {
		// A move leaves the line once it has a record, so each counts once.
		s.Active = l.records.holding(func(move types.UID) bool { return l.moves[move] == nil })
	}
	for _, q := range l.moves {
		switch {
		case q.lane != i:
		case q.begins:
			s.Active[q.Namespace]++
		default:
			s.Waiting = append(s.Waiting, q.Move)
		}
	}
	return s
}

// untold returns where the first move stands whose status does not say so; false if there is
// none. It counts as told from now on.
func (l *line) untold() (turns.Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		for _, place := range turns.Places(l.limits, l.state(i)) {
			if q := l.moves[place.Move.UID]; q.told != place.Say(l.limits) {
				q.told = place.Say(l.limits)
				return place, true
			}
		}
	}
	return turns.Place{}, false
}

// waiting returns how many moves wait for their turn.
func (l *line) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.moves {
		if !q.begins {
			n++
		}
	}
	return n
}

// fillLine puts all moves into the line that have not begun, before the first one begins: in
// turn, and not as they are read.
func (c *Controller) fillLine() {
	began := func(r *record.Record) time.Time { return r.Began[v1alpha1.MovePrepare] }
	for _, r := range slices.SortedFunc(maps.Values(c.Records.all()), func(a, b *record.Record) int { return began(a).Compare(began(b)) }) {
		if r.Holds() {
			c.line.served(r.Namespace)
		}
	}
	for _, move := range controller.All[v1alpha1.VolumeMove](c.Objects) {
		if c.awaitsTurn(move) {
			c.line.join(move)
		}
	}
}

// awaitsTurn says whether a move has not begun and has to wait for its turn, as far as known.
func (c *Controller) awaitsTurn(move *v1alpha1.VolumeMove) bool {
	return decide.AwaitsTurn(move) && !c.Records.has(move.UID)
}

// isDone says whether a move is over for good, as was last seen: there is no record of it, and
// nothing is to be done any more. So hundreds of them cost no request.
func (c *Controller) isDone(key moveKey) bool {
	move := controller.Get[v1alpha1.VolumeMove](c.Objects, key.String())
	return move != nil && move.UID == key.uid && move.DeletionTimestamp == nil && !c.Records.has(key.uid) && decide.IsFinished(move) &&
		!slices.Contains(move.Finalizers, keys.MoveFinalizer) && move.Spec.TTLSecondsAfterFinished == nil &&
		move.Status.ObservedGeneration == move.Generation
}

// moveChanged queues a move that changed, unless it waits for its turn.
func (c *Controller) moveChanged(was, now *v1alpha1.VolumeMove) {
	move := controller.Either(was, now)
	if now != nil && c.awaitsTurn(now) {
		c.line.join(now)
		c.advance()
		return
	}
	if c.line.leave(move.UID) {
		c.advance()
	}
	if was == nil || now == nil || was.Generation != now.Generation || was.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() {
		c.noteChange(move.UID)
	}
	c.queue.Add(moveKey{types.NamespacedName{Namespace: move.Namespace, Name: move.Name}, move.UID})
}

// advance lets those moves begin whose turn it is.
func (c *Controller) advance() {
	defer func() { c.Metrics.setWaiting(c.line.waiting()) }()
	for _, move := range c.line.advance() {
		c.queue.Add(moveKey{types.NamespacedName{Namespace: move.Namespace, Name: move.Name}, move.UID})
	}
}

// runLine tells waiting moves where they stand, the next one first, until ctx ends.
func (c *Controller) runLine(ctx context.Context) {
	pace := rate.NewLimiter(tellRate, tellBurst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.line.changed:
		}
		for {
			if pace.Wait(ctx) != nil {
				return
			}
			place, ok := c.line.untold()
			if !ok {
				break
			}
			c.tellPlace(ctx, place)
		}
	}
}

// tellPlace writes where a move stands to its status. If the move has changed, an event has it told again.
func (c *Controller) tellPlace(ctx context.Context, place turns.Place) {
	move := controller.Get[v1alpha1.VolumeMove](c.Objects, place.Move.Namespace+"/"+place.Move.Name)
	if move == nil || move.UID != place.Move.UID {
		return
	}
	next := *move.Status.DeepCopy()
	next.ObservedGeneration, next.Message, next.QueuePosition = move.Generation, place.Say(c.line.limits), int32(place.Position)
	c.writeStatus(ctx, move, next)
}

// repeated counts how often the same step was taken in a row.
type repeated struct {
	step  stepKey
	again int
}

const (
	// firstPause is the pause after a repeated step; it doubles up to longestPause.
	firstPause   = 10 * time.Millisecond
	longestPause = 5 * time.Second
)

// stepKey identifies a step.
type stepKey struct {
	verb  string
	on    steps.Subject
	phase v1alpha1.MovePhase
}

// pause returns how long to wait after a step. A step that has no effect although the API
// server reported success is repeated at growing intervals.
func (t *repeated) pause(o steps.Observation, step steps.Step) time.Duration {
	now := stepKey{verb: step.Verb(), on: step.Subject()}
	if o.Record != nil {
		now.phase = o.Record.Phase
	}
	if now != t.step || step.Saved() != nil {
		*t = repeated{step: now}
		return time.Nanosecond
	}
	t.again++
	return min(firstPause<<min(t.again-1, 10), longestPause)
}

// failing is since when every step of a move has failed, and the last error. It is kept in
// memory only.
type failing struct {
	since time.Time
	why   string
}

// note records the result of a step.
func (f *failing) note(now time.Time, err error) {
	switch {
	case err == nil:
		*f = failing{}
	case f.since.IsZero():
		*f = failing{since: now, why: err.Error()}
	default:
		f.why = err.Error()
	}
}

// wakePause gathers the events about a move whose pods are not stopped for it.
const wakePause = 250 * time.Millisecond

// watchObjects has moves observed when their objects at home change: the pods that use their
// claims, their movers, their claims and real claims, their virtual volumes; and claims looked at
// that no move holds, and that have marks of one or pods behind its gate.
func (c *Controller) watchObjects() (unwatch []func() error, err error) {
	pods, err := controller.Watch(c.Pods, c.podChanged)
	if err != nil {
		return nil, err
	}
	claims, err := controller.Watch(c.Claims, c.claimChanged)
	if err != nil {
		return nil, err
	}
	// Their names are enough, so none is unpacked.
	volumes, err := controller.AddHandler(c.Volumes, cache.ResourceEventHandlerFuncs{
		AddFunc: c.volumeChanged, UpdateFunc: func(_, now any) { c.volumeChanged(now) }, DeleteFunc: c.volumeChanged,
	})
	return []func() error{pods, claims, volumes}, err
}

// volumeChanged is for a volume of an informer's event. A move waits for one only while pods are stopped.
func (c *Controller) volumeChanged(obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	c.wake(func(r *record.Record) bool {
		return isStopped(r) && slices.ContainsFunc(r.Claims, func(known record.Claim) bool {
			return known.Volume != nil && known.Volume.Name == name
		})
	})
}

func (c *Controller) podChanged(was, now *home.Pod) {
	pod := controller.Either(was, now)
	if len(pod.Claims) == 0 {
		return
	}
	if now != nil && now.Gated && now.Namespace != c.Place.StorageNamespace { // movers wait at the gate for their keys
		for _, claim := range now.Claims {
			namespace, name, _ := strings.Cut(claim, "/")
			c.marks.queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	c.wake(func(r *record.Record) bool {
		return slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return slices.Contains(pod.Claims, r.Namespace+"/"+known.Name) }) ||
			pod.Namespace == c.Place.StorageNamespace && strings.HasPrefix(pod.Name, record.SecretName(r.UID)+"-")
	})
}

func (c *Controller) claimChanged(was, now *corev1.PersistentVolumeClaim) {
	claim := controller.Either(was, now)
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	switch {
	case now == nil:
		c.marks.told.Forget(key)
	case now.Namespace != c.Place.StorageNamespace && isMarked(now):
		c.marks.queue.Add(key)
	}
	move := types.UID(claim.Labels[keys.MoveOf])
	c.wake(func(r *record.Record) bool {
		return r.UID == move || slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.UID == claim.UID })
	})
}

// ClusterChanged has the moves observed that have a copy in a cluster whose state has changed.
func (c *Controller) ClusterChanged(cluster string, _ bool) {
	c.wake(func(r *record.Record) bool {
		return slices.ContainsFunc(r.Claims, func(known record.Claim) bool {
			return known.Source.Ref.Cluster == cluster || known.Target.Ref.Cluster == cluster
		})
	})
}

// wake queues the unfinished moves for which about is true.
func (c *Controller) wake(about func(*record.Record) bool) {
	for _, r := range c.Records.those(about) {
		c.noteChange(r.UID)
		if isStopped(r) {
			c.queue.Add(keyOf(r))
		} else {
			c.queue.AddAfter(keyOf(r), wakePause)
		}
	}
}

func keyOf(r *record.Record) moveKey {
	return moveKey{types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.UID}
}

// isStopped says whether pods cannot use the claims of a move now.
func isStopped(r *record.Record) bool { return !r.Down.IsZero() && r.Up.IsZero() }
