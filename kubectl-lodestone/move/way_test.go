package move

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestHowDataTravelsIsShown(t *testing.T) {
	direct := v1alpha1.MovedClaim{Name: "data", Bytes: 1, BytesTotal: 2, Transport: v1alpha1.TransportDirect}
	spliced := v1alpha1.MovedClaim{Name: "log", Bytes: 1, BytesTotal: 2, Transport: v1alpha1.TransportSpliced,
		Legs: &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAPIServer}, TransportMessage: "the networks are apart"}
	for name, row := range map[string]struct {
		claims     []v1alpha1.MovedClaim
		line, said string
	}{
		"not yet": {claims: []v1alpha1.MovedClaim{{Name: "data", Bytes: 1, BytesTotal: 2}}},
		"directly": {claims: []v1alpha1.MovedClaim{direct}, line: "  direct",
			said: "the data of claim data travels directly from mover to mover\n"},
		"both ways": {claims: []v1alpha1.MovedClaim{direct, spliced}, line: "  through the provisioner",
			said: "the data of claim data travels directly from mover to mover\nthe data of claim log travels through the provisioner, which reaches the mover at the source at its address and the one at the target through the API server: the networks are apart\n"},
	} {
		t.Run(name, func(t *testing.T) {
			move := moveIn(v1alpha1.MoveFinalSync)
			move.Status.Claims = row.claims
			assert.Equal(t, "FinalSync       "+amount(sumOf(move.Status))+row.line, line(move))
			var out bytes.Buffer
			require.NoError(t, ways(&out, move))
			assert.Equal(t, row.said, out.String())
		})
	}
}
