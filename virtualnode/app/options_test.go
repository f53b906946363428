package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valid returns options as in a pod.
func valid(t *testing.T) *Options {
	t.Helper()
	t.Setenv("POD_IP", "10.0.0.7")
	t.Setenv("POD_NAMESPACE", "")
	return NewOptions()
}

func TestDefaultOptionsAreValidInAPod(t *testing.T) {
	o := valid(t)
	require.NoError(t, o.Validate())
	assert.Equal(t, "10.0.0.7", o.NodeIP)
	assert.Equal(t, "lodestone-system", o.Namespace)
}

func TestFlagsSetTheOptions(t *testing.T) {
	o := valid(t)
	flags := pflag.NewFlagSet("virtualnode", pflag.ContinueOnError)
	o.AddFlags(flags)
	require.NoError(t, flags.Parse([]string{"--cluster-id=east", "--node-ip=fd00::7", "--kubelet-ports-from=0", "--heartbeat-interval=2s",
		"--kubelet-address=127.0.0.1"}))
	assert.Equal(t, "east", o.ClusterID)
	assert.Equal(t, "fd00::7", o.NodeIP)
	assert.Zero(t, o.KubeletPortsFrom)
	assert.Equal(t, 2*time.Second, o.Heartbeat)
	require.NoError(t, o.Validate())
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"an ID with capitals": {change: func(o *Options) { o.ClusterID = "East" }, says: "--cluster-id"},
		"an ID that is too long for a tenant": {change: func(o *Options) { o.ClusterID = "a1234567890123456789012345678901234567890" },
			says: "up to 40"},
		"the ID that stands for home":    {change: func(o *Options) { o.ClusterID = "home" }, says: `other than "home"`},
		"no namespace":                   {change: func(o *Options) { o.Namespace = "" }, says: "--namespace"},
		"a lease that is too short":      {change: func(o *Options) { o.LeaseDuration = time.Second }, says: "--lease-duration"},
		"no probes":                      {change: func(o *Options) { o.ProbeInterval = 0 }, says: "--probe-interval"},
		"a heartbeat that is too slow":   {change: func(o *Options) { o.Heartbeat = 20 * time.Second }, says: "--heartbeat-interval"},
		"no address":                     {change: func(o *Options) { o.NodeIP = "" }, says: "--node-ip"},
		"a name for an address":          {change: func(o *Options) { o.NodeIP = "node.example.com" }, says: "--node-ip"},
		"a place to listen that is none": {change: func(o *Options) { o.KubeletAddress = "everywhere" }, says: "--kubelet-address"},
		"ports of others":                {change: func(o *Options) { o.KubeletPortsFrom = 80 }, says: "--kubelet-ports-from"},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid(t)
			test.change(o)
			assert.ErrorContains(t, o.Validate(), test.says)
		})
	}
}
