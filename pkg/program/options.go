// Package program has what programs with a leader share: flags (Options), the election of the leading
// replica (Lead), and the endpoints for health, readiness and metrics (Probes). Such a program calls
// Start, which returns a Process with clients, metrics and an event recorder, and then Process.Lead.
// Read process.go first. Package command makes the command of a program.
package program

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	validation "k8s.io/apimachinery/pkg/util/validation"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Options are the flags that all programs with a leader have.
type Options struct {
	Kubeconfig    string
	Namespace     string
	HTTPAddress   string
	LeaderElect   bool
	LeaseDuration time.Duration
	Logs          *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults of a program that runs in a namespace, unless
// POD_NAMESPACE names another one.
func NewOptions(namespace string) Options {
	if pods := os.Getenv("POD_NAMESPACE"); pods != "" {
		namespace = pods
	}
	return Options{
		Namespace:     namespace,
		HTTPAddress:   ":8081",
		LeaderElect:   true,
		LeaseDuration: 15 * time.Second,
		Logs:          logsapi.NewLoggingConfiguration(),
	}
}

// AddFlags adds the flags to a flag set; the help texts say which cluster the
// program works for and what is in the namespace.
func (o *Options) AddFlags(flags *pflag.FlagSet, cluster, holds string) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of "+cluster+"; empty: the pod's service account")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of "+holds)
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "let one of several replicas work at a time")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration,
		"how long other replicas wait before they replace a silent leader; at least 3s")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q is not the name of a namespace", o.Namespace))
	}
	if o.LeaseDuration < 3*time.Second {
		errs = append(errs, fmt.Errorf("--lease-duration %v is too short: give at least 3s", o.LeaseDuration))
	}
	return errors.Join(append(errs, ValidateAddress("--http-address", o.HTTPAddress))...)
}

// ValidateAddress returns what is wrong with a flag that has an address to listen at; empty: none.
func ValidateAddress(flag, address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s %q is no address: give [HOST]:PORT, such as :8081", flag, address)
	}
	return nil
}

// ValidateClusterID returns what is wrong with the flag --cluster-id; it may be
// empty.
func ValidateClusterID(id string) error {
	if id != "" && (len(validation.IsDNS1123Label(id)) > 0 || len(id) > 40 || id == "home") {
		return fmt.Errorf("--cluster-id %q cannot be used: give up to 40 lower-case letters, digits and '-', other than \"home\"", id)
	}
	return nil
}
