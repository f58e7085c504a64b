// Package api tries the CRDs of this project on a real API server: that it takes
// them, what it defaults, and what it refuses with which words. What a controller
// makes of an object is none of its business. So with the other objects of the chart.
package api
