//go:build !race

package bridge_test

const burst = 300
