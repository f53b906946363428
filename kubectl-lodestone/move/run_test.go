package move

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var there = refusedFor(v1alpha1.MoveAlreadyThere, "the data is there already")

// written is what is read of an output.
type written struct {
	APIVersion, Kind string
	Spec             struct{ Claims []string }
	Status           struct{ Phase v1alpha1.MovePhase }
	Items            []written
}

// read reads an output that is one JSON object.
func read(t *testing.T, out string) (w written) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &w), out)
	return w
}

func (w written) isMove(t *testing.T, claim string, phase v1alpha1.MovePhase) {
	t.Helper()
	assert.Equal(t, "lodestone.dev/v1alpha1", w.APIVersion)
	assert.Equal(t, "VolumeMove", w.Kind)
	assert.Equal(t, []string{claim}, w.Spec.Claims)
	assert.Equal(t, phase, w.Status.Phase)
}

func TestReplicasWhoseDataIsThereArePassedOver(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		s := &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": there}}
		r, wrote := shop(t, s)
		r.Class, r.Together = "fast", together
		require.NoError(t, r.replicas(t))
		out, said := wrote()
		assert.Contains(t, out, "data-db-1; ", "%v", together)
		assert.Contains(t, out, "data-db-2; ")
		assert.NotContains(t, out, "data-db-0")
		assert.Contains(t, said, "data-db-0: nothing to do, the data is there")
		assert.Len(t, s.moves, 2, "what moved nothing is not left")
		for _, move := range s.moves {
			assert.Equal(t, "fast", move.Spec.ClassName, "the class is told to the provisioner, who knows where the data is")
		}
	}
}

func TestAStatefulSetThatIsThereIsNothingToDo(t *testing.T) {
	t.Parallel()
	all := map[string]func(*v1alpha1.VolumeMove){"data-db-0": there, "data-db-1": there, "data-db-2": there}
	r, wrote := shop(t, &server{fate: all})
	require.NoError(t, r.replicas(t))
	out, _ := wrote()
	assert.Equal(t, "nothing to do: all claims have their data there\n", out)

	r, wrote = shop(t, &server{fate: all})
	r.Output.Format = cli.JSON
	require.NoError(t, r.replicas(t))
	out, _ = wrote()
	assert.JSONEq(t, `{"apiVersion": "v1", "kind": "List", "items": []}`, out)
}

func TestAClaimThatIsNamedIsRefusedWhereItIs(t *testing.T) {
	t.Parallel()
	r, wrote := shop(t, &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": there}})
	r.Output.Format = cli.JSON
	err := r.run(t.Context(), [][]string{{"data-db-0"}})
	assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
	out, _ := wrote()
	read(t, out).isMove(t, "data-db-0", v1alpha1.MoveFailed)
}

func TestTheMovesOfAStatefulSetAreOneList(t *testing.T) {
	t.Parallel()
	s := &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-1": fails}}
	r, wrote := shop(t, s)
	r.Output.Format = cli.JSON
	err := r.replicas(t)
	assert.ErrorContains(t, err, "data-db-1 was not moved: the copies differ; not begun: data-db-2")
	assert.Equal(t, cli.Failed, cli.ExitCodeOf(err))
	out, _ := wrote()
	list := read(t, out)
	assert.Equal(t, "v1", list.APIVersion)
	assert.Equal(t, "List", list.Kind)
	require.Len(t, list.Items, 2)
	list.Items[0].isMove(t, "data-db-0", v1alpha1.MoveRetain)
	list.Items[1].isMove(t, "data-db-1", v1alpha1.MoveFailed)
}

func TestMovesThatRunTogetherAreAllFollowed(t *testing.T) {
	t.Parallel()
	r, wrote := shop(t, &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": refusedFor("Refused", "no")}})
	r.Output.Format, r.Together = cli.JSON, true
	err := r.replicas(t)
	assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
	out, _ := wrote()
	list := read(t, out)
	require.Len(t, list.Items, 3)
	list.Items[0].isMove(t, "data-db-0", v1alpha1.MoveFailed)
	list.Items[2].isMove(t, "data-db-2", v1alpha1.MoveRetain)
}

func TestWhatIsNotWaitedForIsWrittenAsItWasMade(t *testing.T) {
	t.Parallel()
	r, wrote := shop(t, &server{})
	r.Output.Format, r.Detach = cli.JSON, true
	require.NoError(t, r.run(t.Context(), [][]string{{"data-db-0"}}))
	out, said := wrote()
	read(t, out).isMove(t, "data-db-0", "")
	assert.Empty(t, said)
}

func TestAnAbortThatComesTooLateIsSaidToHave(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fate func(*v1alpha1.VolumeMove)
		says string
	}{
		"the move is committed meanwhile": {succeeds, "move data-db-0-0 was committed before it could be aborted: kubectl lodestone move " +
			"rollback data-db-0-0 -n shop moves it back once it is done"},
		"it is in Commit":    {func(m *v1alpha1.VolumeMove) { m.Status.Phase = v1alpha1.MoveCommit }, "was committed before it could be aborted"},
		"it goes back":       {func(m *v1alpha1.VolumeMove) { m.Status.Phase = v1alpha1.MoveRollBack }, ""},
		"it fails":           {fails, ""},
		"nobody looks at it": {func(*v1alpha1.VolumeMove) {}, ""},
	} {
		s := &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": row.fate}}
		r, _ := shop(t, s)
		r.Detach = true
		require.NoError(t, r.run(t.Context(), [][]string{{"data-db-0"}}), name)
		for _, made := range s.moves {
			made.Namespace = "shop"
			move, err := abort(t.Context(), r.home, made.DeepCopy())
			assert.Equal(t, v1alpha1.ActionAbort, move.Spec.Action, name)
			if row.says == "" {
				assert.NoError(t, err, name)
			} else {
				assert.ErrorContains(t, err, row.says, name)
			}
		}
	}
}

func TestWhatIsAskedOfAMoveIsWrittenAlsoIfItIsRefused(t *testing.T) {
	t.Parallel()
	s := &server{}
	r, _ := shop(t, s)
	r.Detach = true
	require.NoError(t, r.run(t.Context(), [][]string{{"data-db-0"}}))
	for _, made := range s.moves {
		made.Namespace = "shop"
		var out bytes.Buffer
		move, err := setAction(t.Context(), r.home, made.DeepCopy(), v1alpha1.ActionAbort)
		require.NoError(t, named.PrintAsked(&out, cli.Output{Format: cli.JSON}, move, "abort", err))
		read(t, out.String()).isMove(t, "data-db-0", "")
		assert.Contains(t, out.String(), `"action": "Abort"`)

		fails(made)
		made.Spec.Action = v1alpha1.ActionMove
		out.Reset()
		move, err = setAction(t.Context(), r.home, made.DeepCopy(), v1alpha1.ActionFinalize)
		err = named.PrintAsked(&out, cli.Output{Format: cli.JSON}, move, "finalize", err)
		assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
		read(t, out.String()).isMove(t, "data-db-0", v1alpha1.MoveFailed)
	}
}
