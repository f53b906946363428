package crash

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// moving is what a case with a move knows of it.
type moving struct {
	trip trip
	// name and uids are those of the VolumeMoves: the last one goes on.
	name    string
	uids    []types.UID
	volumes map[string]*tracked
	// phase is the one that was recorded last, met that at which the fault happened.
	phase, met string
	// status and why are what the VolumeMove said last; over: it is gone.
	status, why string
	over        bool
	// abort, if not nil, has the user ask for that, at what the provisioner writes in a
	// phase; aborted: it was asked for.
	abort   *abortion
	aborted bool
	// repository is the cluster whose object store the content travels through, as the
	// VolumeMove says; snapshot: a snapshot was taken.
	repository string
	snapshot   bool
	// torn says when no copy of a claim was whole; empty: there always was one.
	torn string
}

// tracked is what is known of a claim's volume.
type tracked struct {
	disk
	// log is what the application had written where the volume was before the move, when it
	// was last looked at; ballast the sum of what lies beside it.
	log     string
	ballast [sha256.Size]byte
	// settled is how many lines there were when all else was well.
	settled int
}

// fill writes the ballast once: a second move carries that of the first.
func (t *tracked) fill() (err error) {
	if t.ballast == [sha256.Size]byte{} {
		t.ballast, err = t.disk.fill()
	}
	return err
}

// track remembers where the volume of a claim is.
func (m *moving) track(claim string, at disk) {
	if m.volumes == nil {
		m.volumes = map[string]*tracked{}
	}
	if m.volumes[claim] == nil {
		m.volumes[claim] = &tracked{}
	}
	m.volumes[claim].disk = at
}

// recorded finds the phase in a record of a move.
var (
	recordedPhase = regexp.MustCompile(`"phase":"([A-Za-z]+)","began"`)
	encodedRecord = regexp.MustCompile(`"record":"([A-Za-z0-9+/=]+)"`)
)

// note learns from a request that writes a record in which phase the move is. undo is for a
// request that is not carried out.
func (c *Case) note(call Call, body []byte) (undo func()) {
	if call.Object != "record" || !call.writes() {
		return func() {}
	}
	if encoded := encodedRecord.FindSubmatch(body); encoded != nil {
		if plain, err := base64.StdEncoding.DecodeString(string(encoded[1])); err == nil {
			body = plain
		}
	}
	found := recordedPhase.FindSubmatch(body)
	if found == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.moving.phase
	c.moving.phase = string(found[1])
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving.phase = before
	}
}

// abortion is when a user aborts a move: at the first write of an object in a phase.
type abortion struct {
	phase, object string
	ask           func() error
}

// abortAt has the user abort the move at a call, if that is the one.
func (c *Case) abortAt(call Call) {
	c.mu.Lock()
	a := c.moving.abort
	now := a != nil && call.writes() && a.phase == c.moving.phase && a.object == call.Object && !c.moving.aborted
	c.mu.Unlock()
	if !now || a.ask() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.aborted = true
}

// metAt returns the phase of the move at which the fault happened.
func (c *Case) metAt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moving.met
}

// watchMove notes what the VolumeMove says, what the application has written at the
// source, which must be at the target in the end, and whether there is a whole copy.
func (w *World) watchMove(ctx context.Context, c *Case, v *View) error {
	for name, volume := range c.moving.volumes {
		if log, err := volume.disk.log(); err == nil && log != "" {
			volume.log = log
		}
		if c.moving.torn == "" && !w.wholeSomewhere(v, name) {
			c.moving.torn = fmt.Sprintf("in phase %s no copy of claim %s was whole", c.moving.status, name)
		}
	}
	move, err := w.moves.In(c.Namespace).Get(ctx, c.moving.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.moving.over = true
		return nil
	case err != nil:
		return fmt.Errorf("look at VolumeMove %s: %w", c.moving.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.status, c.moving.why = string(move.Status.Phase), move.Status.Message
	if len(move.Status.Claims) > 0 {
		c.moving.repository = move.Status.Claims[0].Repository
	}
	return nil
}

// wholeSomewhere says whether a real volume of a claim is in its storage, with a ballast of
// full size; what is in that is read in the end.
func (w *World) wholeSomewhere(v *View, name string) bool {
	claim := v.Claim(name)
	if claim == nil {
		return false
	}
	_, _, reals := v.of(claim.UID)
	for _, real := range reals {
		if at, err := w.diskOf(real); err == nil && !w.missing(real) && at.laden() {
			return true
		}
	}
	return false
}
