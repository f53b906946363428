package homeepoch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const period = 5 * time.Second

func mark(epoch, renewal int64, nonce string) Mark {
	return Mark{Epoch: epoch, Renewal: renewal, Nonce: nonce, Seconds: period.Seconds()}
}

func released(m Mark) Mark { m.Released = true; return m }

func recorded(held, next Mark) *Record {
	return &Record{RemoteCluster: "west", Peering: "p1", Held: held, Next: next}
}

func doubted(found Mark, held, next Mark) *Record {
	r := recorded(held, next)
	r.Doubt = &Doubt{ID: "d1", Reason: RemoteAhead, Found: found}
	return r
}

func TestDecide(t *testing.T) {
	m1, m2, m3, other := mark(1, 1, "a"), mark(1, 2, "b"), mark(1, 3, "c"), mark(1, 9, "x")
	taken := mark(2, 0, "t")
	validity := Validity(period)
	for name, test := range map[string]struct {
		record     *Record
		mark       Mark
		unreadable bool
		peering    string
		watched    time.Duration
		beaten     bool
		quiet      time.Duration
		holding    bool
		arrived    bool
		confirmed  string

		do     Verb
		acts   bool
		next   Mark
		held   Mark
		left   time.Duration
		reason string
	}{
		"the first peering, and an upgrade: no record and no mark": {do: Write, acts: true, next: mark(1, 0, "new")},
		"its first mark was recorded and not written": {
			record: recorded(Mark{}, mark(1, 0, "a")), do: Write, acts: true, next: mark(1, 0, "a")},
		"a mark that home has no record of": {mark: m1, do: Suspect, reason: NoRecord},
		"the leader renews": {
			record: recorded(m1, m2), mark: m2, holding: true, do: Write, acts: true, held: m2, next: mark(1, 3, "new")},
		"the renewal of the leader did not arrive": {
			record: recorded(m1, m2), mark: m1, holding: true, do: Write, acts: true, held: m1, next: m2},
		"a new process watches first": {record: recorded(m1, m2), mark: m2, do: Wait, left: 3 * period},
		"a new process has watched for long enough": {
			record: recorded(m1, m2), mark: m2, watched: 3 * period, do: Write, acts: true, held: m2, next: mark(1, 3, "new")},
		"a new process has not, and the last renewal did not arrive": {
			record: recorded(m1, m2), mark: m1, watched: period, do: Wait, left: 2 * period},
		"it has, and the last renewal did not arrive": {
			record: recorded(m1, m2), mark: m1, watched: 3 * period, do: Write, acts: true, held: m1, next: m2},
		"the process before ended in good order": {
			record: recorded(m1, released(m2)), mark: released(m2), do: Write, acts: true, held: released(m2), next: mark(1, 3, "new")},
		"it ended, but could not say so there": {
			record: recorded(m1, released(m2)), mark: m1, watched: 3 * period, do: Write, held: m1, next: released(m2)},
		"a renewal after that did not arrive": {
			record: recorded(released(m2), m3), mark: released(m2), do: Write, acts: true, held: released(m2), next: m3},
		"the mark there is later": {
			record: recorded(m1, m2), mark: other, holding: true, do: Suspect, reason: RemoteAhead},
		"the mark there is of a later epoch": {
			record: recorded(m1, m2), mark: taken, do: Suspect, reason: RemoteAhead},
		"the remote cluster was restored from before the last renewal, which this process saw there": {
			record: recorded(m1, m2), mark: m1, holding: true, arrived: true, do: Suspect, reason: RemoteBehind},
		"the mark there is earlier": {
			record: recorded(m2, m3), mark: m1, holding: true, do: Suspect, reason: RemoteBehind},
		"the mark is gone": {
			record: recorded(m1, m2), holding: true, do: Suspect, reason: MarkMissing},
		"a copy renewed the same mark": {
			record: recorded(m1, m2), mark: mark(1, 2, "x"), holding: true, do: Suspect, reason: TwoHolders},
		"what no home cluster writes": {
			record: recorded(m1, m2), mark: ParseMark("{"), do: Suspect, reason: RemoteBehind},
		"the cluster was peered with again": {
			record: recorded(m1, m2), peering: "p2", do: Write, acts: true, next: mark(1, 0, "new")},
		"it was, and another copy was first": {
			record: recorded(m1, m2), peering: "p2", mark: m3, do: Suspect, reason: NoRecord},
		"the RemoteCluster was made anew, and the mark is gone": {
			record: &Record{RemoteCluster: "older", Peering: "p1", Held: m1, Next: m2}, do: Write, acts: true, next: mark(1, 0, "new")},
		"the RemoteCluster was made anew, and the mark is that of the earlier one": {
			record: &Record{RemoteCluster: "older", Peering: "p0", Held: m1, Next: m2}, mark: m2, watched: 3 * period,
			do: Write, acts: true, held: m2, next: mark(1, 3, "new")},
		"the RemoteCluster was made anew, and the mark is another": {
			record: &Record{RemoteCluster: "older", Peering: "p1", Held: m1, Next: m2}, mark: m3, do: Suspect, reason: NoRecord},
		"in doubt": {
			record: doubted(other, m1, m2), mark: other, watched: time.Hour, do: Stay, reason: RemoteAhead},
		"in doubt, and peered with again": {
			record: doubted(other, m1, m2), peering: "p2", watched: time.Second, do: Stay, reason: RemoteAhead},
		"in doubt, and the mark is as recorded again": {
			record: doubted(other, m1, m2), mark: m2, watched: time.Second, do: Stay, reason: RemoteAhead},
		"in doubt, and the mark has changed and stands still": {
			record: doubted(other, m1, m2), mark: m3, watched: 3 * validity, do: Suspect, reason: RemoteAhead},
		"another doubt was confirmed": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d0", watched: time.Hour, do: Stay, reason: RemoteAhead},
		"confirmed, and watches whether it stands still": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d1", watched: validity, do: Wait, left: 2 * validity, reason: RemoteAhead},
		"confirmed, and it does": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d1", watched: 3 * validity, do: Write, held: other, next: mark(2, 0,
				"new")},
		"confirmed, but virtual nodes of another copy send heartbeats": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d1", watched: 3 * validity, beaten: true, quiet: period,
			do: Suspect, reason: RemoteAhead},
		"confirmed, and the last heartbeat came not long ago": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d1", watched: 3 * validity, beaten: true, quiet: 2 * validity,
			do: Wait, left: validity, reason: RemoteAhead},
		"confirmed, and home's own virtual nodes have just noticed the doubt": {
			record: doubted(other, m1, m2), mark: other, confirmed: "d1", watched: period, beaten: true, quiet: 0,
			do: Wait, left: 3 * validity, reason: RemoteAhead},
		"confirmed where there is none": {
			record: doubted(Mark{}, m1, m2), confirmed: "d1", watched: 3 * validity, do: Write, next: mark(2, 0, "new")},
		"confirmed, but another copy renews it": {
			record: doubted(other, m1, m2), mark: mark(1, 10, "y"), confirmed: "d1", do: Suspect, reason: RemoteAhead},
		"taken over, but the mark did not arrive": {
			record: recorded(other, taken), mark: other, watched: 3 * validity, do: Write, held: other, next: taken},
		"taken over, but the mark did not arrive, in a new process": {
			record: recorded(other, taken), mark: other, watched: validity, do: Wait, left: 2 * validity},
		"taken over, and lets whoever acted before notice": {
			record: recorded(other, taken), mark: taken, do: Wait, left: validity},
		"taken over, and acts": {
			record: recorded(other, taken), mark: taken, watched: validity, do: Write, acts: true, held: taken, next: mark(2, 1, "new")},
		"home may keep no mark there":                                  {unreadable: true, do: Unkept},
		"home may keep none there, as it found when it wrote it first": {record: recorded(Mark{}, m1), unreadable: true, do: Unkept},
		"home may read its mark no more":                               {record: recorded(m1, m2), unreadable: true, do: Wait},
		"in doubt, and home may read the mark no more": {
			record: doubted(other, m1, m2), unreadable: true, do: Stay, reason: RemoteAhead},
	} {
		t.Run(name, func(t *testing.T) {
			peering := test.peering
			if peering == "" {
				peering = "p1"
			}
			if !test.beaten {
				test.quiet = test.watched
			}
			got := Decide(Observation{Record: test.record, Mark: test.mark, Unreadable: test.unreadable, RemoteCluster: "west", Peering: peering,
				Watched: test.watched, Quiet: test.quiet, Holding: test.holding, Arrived: test.arrived, Confirmed: test.confirmed, Period: period,
				Nonce: "new"})
			assert.Equal(t, test.do, got.Do)
			assert.Equal(t, test.acts, got.Acts)
			assert.Equal(t, test.left, got.Left)
			if test.reason != "" {
				assert.Equal(t, test.reason, got.Record.Doubt.Reason)
			} else {
				assert.Nil(t, got.Record.Doubt)
			}
			if test.do == Write {
				assert.Equal(t, Record{RemoteCluster: "west", Peering: peering, Held: test.held, Next: test.next}, got.Record)
			}
			if test.do == Suspect {
				assert.Equal(t, "new", got.Record.Doubt.ID)
				assert.Equal(t, test.mark, got.Record.Doubt.Found)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	m1, m2, taken := mark(1, 1, "a"), mark(1, 2, "b"), mark(2, 0, "t")
	for name, test := range map[string]struct {
		record     *Record
		mark       Mark
		unreadable bool
		watched    time.Duration
		renewed    bool
		want       Verdict
	}{
		"no provisioner has been there yet":    {want: InForce},
		"home may keep no mark there":          {unreadable: true, want: InForce},
		"the first mark is being written":      {record: recorded(Mark{}, m1), want: InForce},
		"a mark that home has no record of":    {mark: m1, watched: time.Hour, want: Unknown},
		"the recorded one, seen just now":      {record: recorded(m1, m2), mark: m2, want: Unknown},
		"the recorded one, which home renewed": {record: recorded(m1, m2), mark: m2, renewed: true, want: InForce},
		"the recorded one, which stands still": {record: recorded(m1, m2), mark: m1, watched: 3 * period, want: InForce},
		"another one": {
			record: recorded(m1, m2), mark: mark(1, 7, "x"), watched: time.Hour, want: Unknown},
		"none any more":          {record: recorded(m1, m2), watched: time.Hour, want: Unknown},
		"it may be read no more": {record: recorded(m1, m2), unreadable: true, want: Unknown},
		"in doubt, whatever there is": {
			record: doubted(m2, m1, m2), mark: m2, watched: time.Hour, renewed: true, want: Inert},
		"the provisioner takes over, and does not act yet": {
			record: recorded(m2, taken), mark: taken, watched: time.Hour, renewed: true, want: Unknown},
		"the provisioner has taken over": {
			record: recorded(taken, mark(2, 1, "u")), mark: mark(2, 1, "u"), renewed: true, want: InForce},
		"a record of an earlier RemoteCluster": {
			record: &Record{RemoteCluster: "older", Held: m1, Next: m2}, mark: m2, watched: time.Hour, want: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Judge(Observation{Record: test.record, Mark: test.mark, Unreadable: test.unreadable, RemoteCluster: "west",
				Watched: test.watched, Period: period}, test.renewed))
		})
	}
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	m := released(mark(3, 1841, "a"))
	text, err := m.Encode()
	assert.NoError(t, err)
	assert.Equal(t, m, ParseMark(text))
	assert.True(t, ParseMark("").None())
	for _, text := range []string{"{", `{"epoch":1}`, `{"epoch":9007199254740993,"nonce":"a"}`, `{"epoch":-1,"nonce":"a"}`,
		`{"epoch":1,"renewal":-1,"nonce":"a"}`} {
		assert.False(t, ParseMark(text).None(), text)
		assert.Zero(t, ParseMark(text).Epoch, text)
	}
	record := doubted(m, Mark{}, m)
	data, err := record.Encode()
	assert.NoError(t, err)
	again, err := ParseRecord(data)
	assert.NoError(t, err)
	assert.Equal(t, record, again)
}
