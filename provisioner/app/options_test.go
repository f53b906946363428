package app

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	require.NoError(t, NewOptions().Validate())
}

func TestNamespaceDefaultsToThatOfThePod(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "storage-system")
	assert.Equal(t, "storage-system", NewOptions().Namespace)
	t.Setenv("POD_NAMESPACE", "")
	assert.Equal(t, "lodestone-system", NewOptions().Namespace)
}

func TestFlagsSetTheOptions(t *testing.T) {
	o := NewOptions()
	flags := pflag.NewFlagSet("provisioner", pflag.ContinueOnError)
	o.AddFlags(flags)
	require.NoError(t, flags.Parse([]string{"--cluster-id=east", "--storage-namespace=twins", "--leader-elect=false", "--probe-interval=2s",
		"--workers=5", "--mover-scratch=20Gi", "--publish-capacity=false", "--max-moves=5", "--max-moves-per-namespace=5"}))
	assert.Equal(t, "east", o.ClusterID)
	assert.Equal(t, "twins", o.StorageNamespace)
	assert.False(t, o.LeaderElect)
	assert.Equal(t, 2*time.Second, o.ProbeInterval)
	assert.Equal(t, 5, o.Workers)
	assert.False(t, o.PublishCapacity)
	assert.Equal(t, []int{5, 5}, []int{o.MaxMoves, o.MaxMovesPerNamespace})
	scratch, err := o.scratch()
	require.NoError(t, err)
	assert.EqualValues(t, 20<<30, scratch)
	require.NoError(t, o.Validate())
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		says   []string
	}{
		"an ID with capitals":              {change: func(o *Options) { o.ClusterID = "East" }, says: []string{"--cluster-id"}},
		"an ID with a dot":                 {change: func(o *Options) { o.ClusterID = "east.one" }, says: []string{"--cluster-id"}},
		"an ID that is too long":           {change: func(o *Options) { o.ClusterID = strings.Repeat("a", 64) }, says: []string{"--cluster-id"}},
		"the ID that stands for home":      {change: func(o *Options) { o.ClusterID = "home" }, says: []string{`other than "home"`}},
		"no namespace":                     {change: func(o *Options) { o.Namespace = "" }, says: []string{"--namespace"}},
		"a storage namespace that is none": {change: func(o *Options) { o.StorageNamespace = "a/b" }, says: []string{"--storage-namespace"}},
		"a lease that is too short": {change: func(o *Options) { o.LeaseDuration = 2 * time.Second },
			says: []string{"--lease-duration", "at least 3s"}},
		"no interval":                     {change: func(o *Options) { o.ProbeInterval = 0 }, says: []string{"--probe-interval"}},
		"a negative period":               {change: func(o *Options) { o.RefusalPeriod = -time.Second }, says: []string{"--refusal-period"}},
		"room for movers that is no size": {change: func(o *Options) { o.MoverScratch = "much" }, says: []string{"--mover-scratch", "as 20Gi"}},
		"too little room for movers": {change: func(o *Options) { o.MoverScratch = "0" },
			says: []string{"--mover-scratch", "at least 1Mi"}},
		"no time to settle": {change: func(o *Options) { o.MoveSettling = 0 }, says: []string{"--move-settling"}},
		"no margin": {change: func(o *Options) { o.ForcedDeletionMargin = 0 },
			says: []string{"--forced-deletion-margin"}},
		"no moves":                {change: func(o *Options) { o.MaxMoves, o.MaxMovesPerNamespace = 0, 0 }, says: []string{"--max-moves 0"}},
		"no moves of a namespace": {change: func(o *Options) { o.MaxMovesPerNamespace = 0 }, says: []string{"at least 1"}},
		"more moves of a namespace than in all": {change: func(o *Options) { o.MaxMoves = 2 },
			says: []string{"--max-moves 2", "--max-moves-per-namespace 3", "at most as many as for all"}},
		"no workers": {change: func(o *Options) { o.Workers = 0 }, says: []string{"--workers"}},
		"all that is wrong is told at once": {change: func(o *Options) { o.ClusterID, o.Workers = "home", -1 },
			says: []string{"--cluster-id", "--workers"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			test.change(o)
			err := o.Validate()
			require.Error(t, err)
			for _, says := range test.says {
				assert.ErrorContains(t, err, says)
			}
		})
	}
}
