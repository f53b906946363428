package decide

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what a point looks at before it writes to a head, where spec.scrubEvery is given. Each point reads both sides in whole and
// sends what differs: so it mends what has changed without anybody having written it, and would say nothing of that. Of block volumes,
// which are read anew by each comparison, only a scrub looks. That also reads all of both sides from their disks after it has written.

const (
	// lookTask is the ID of the task that looks.
	lookTask = "look"
	// settling is by how much a file must be older than the version at the standby for its times to tell that it has not changed since: a
	// snapshot may have the new times of a file, and not yet what was written then.
	settling = 10 * time.Minute
	// longestPath is how much is kept of the name of a file, in bytes.
	longestPath = 200
)

// Suspect is the reason of the events that tell what was found.
const Suspect = "Suspect"

// scrubDue says whether the point that begins to copy is to be a scrub.
func scrubDue(o Observation) bool {
	every, last := o.Replica.Spec.ScrubEvery, o.Record.Scrubbed
	return every != nil && (last.IsZero() || Ahead(last, o.Now) || o.Now.Sub(last) >= every.Duration)
}

// look notes what a mover has seen of a claim before anything was written.
func look(o Observation, i int, seen *moverapi.Verified) Step {
	if seen == nil || seen.Unseen == nil || seen.TargetRoot == "" {
		return giveUp(o, "the mover compared all that is at the standby and does not say what it found: use movers of the provisioner's version")
	}
	next := o.Record.Clone()
	found := findingOf(o, i, seen)
	next.Look(i, found, o.Now)
	step := Step{Action: Save{next}}
	if found != nil {
		step.Say, step.Reason = sayFinding(next, found), Suspect
	}
	return step
}

// findingOf judges what a mover has seen of a head that is known to have had something; nil: nothing is wrong. Whether it still has is not
// known if the root is by another definition, or a block volume has another size by now, and so another part of it was read.
func findingOf(o Observation, i int, seen *moverapi.Verified) *record.Finding {
	p := o.Record.Point.At(i)
	found := &record.Finding{Claim: o.Record.At(i).Claim, Number: o.Record.Point.Number, Bytes: max(0, seen.Unseen.Bytes), Block: p.Block}
	if !p.Block {
		found.Files = max(0, seen.Unseen.Files)
		found.First = sentence.Short(sentence.Plain(seen.Unseen.First, len(seen.Unseen.First)), longestPath)
	}
	if seen.RootVersion == p.Was.RootVersion && (!p.Block || seen.TargetBytes == p.Was.Bytes) {
		found.Altered = seen.TargetRoot != p.Was.Root
	}
	if !found.Altered && found.Files == 0 {
		return nil
	}
	return found
}

// SayFound says what was found since the scrub before the last one, in one sentence with what to do; empty: nothing. Of several claims it
// says all of one.
func SayFound(r *record.Record) string {
	if len(r.Found) == 0 {
		return ""
	}
	say := sayFinding(r, &r.Found[0])
	if len(r.Found) > 1 {
		var others []string
		for _, found := range r.Found[1:] {
			others = append(others, strconv.Quote(found.Claim))
		}
		say += "; more was found of " + strings.Join(others, ", ") + ": see the events Suspect"
	}
	return say
}

func sayFinding(r *record.Record, found *record.Finding) string {
	files := fmt.Sprintf("%d files (%s; the first is %s) have another content, though their size and time of change are the same",
		found.Files, sentence.Size(found.Bytes), found.First)
	if !found.Altered {
		return fmt.Sprintf("point %d found that of claim %q %s, and the copy in cluster %s was as it was sealed: the storage of the claim has "+
			"altered them, or the application sets times back; versions from before that point have them as they were: look at them there "+
			"(failover --test) before those versions go", found.Number, found.Claim, files, r.Head.Cluster)
	}
	what := files
	switch {
	case found.Block:
		what = fmt.Sprintf("it is among %s that differ, with what was just written", sentence.Size(found.Bytes))
	case found.Files == 0:
		what = "names, sizes or times differ, or files that were just written"
	}
	return fmt.Sprintf("point %d found that the copy of claim %q in cluster %s was not what was sealed there: %s; its storage has altered "+
		"it, or somebody wrote to real claim %s, or home was restored from a backup; it is copied anew, but versions from before that point "+
		"may have the same: look at that storage, and use a later version", found.Number, found.Claim, r.Head.Cluster, what,
		r.At(max(0, r.Index(found.Claim))).Head.Key())
}
