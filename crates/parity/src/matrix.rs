//! Coefficients in the layout of the kernels.

#[cfg(target_arch = "x86_64")]
use crate::gf;
use crate::{CodeError, DATA_MAX, PARITY_MAX};

/// Maximum number of cells of a matrix: k inputs and m outputs with k + m <= 64 and m <= 32.
const CELLS_MAX: usize = 32 * 32;

const _: () = assert!(crate::STRIPS_MAX == 64 && PARITY_MAX == 32);

/// Outputs as combinations of inputs, computed once and used for any number of products.
///
/// **The plain sum.** A multiplication costs more than an addition. If the sum of some outputs is a plain sum of
/// inputs, one of these outputs is therefore computed as this sum plus the other outputs. P of an encoding is such an
/// output alone. In a recovery, the sum of all wanted data strips (and P, if wanted) is the sum of the known ones and
/// P: one strip of every recovery costs only a XOR. Inputs and outputs are reordered so that the summed output is the
/// first and its inputs come first. The order is not visible to callers.
#[derive(Clone)]
pub(crate) struct Matrix {
    inputs: u8,
    outputs: u8,
    /// The number of leading inputs whose sum is the first output; zero if no output is a sum.
    summed: u8,
    /// The mask of outputs that must be added to the sum to get the first output.
    folded: u32,
    /// For each input or output of the matrix, its position in the list of the caller.
    input_order: [u8; DATA_MAX],
    output_order: [u8; PARITY_MAX],
    /// The coefficients: that of input i in output o is at i * outputs + o.
    cells: [u8; CELLS_MAX],
    /// The coefficients as bit matrices, for kernels of this architecture that multiply with bit matrices.
    #[cfg(target_arch = "x86_64")]
    affine: [u64; CELLS_MAX],
}

impl Matrix {
    /// Returns the matrix with `cell(output, input)`. The mask `sum` is a hint: the sum of its outputs may be a plain
    /// sum of inputs. If it is not, the hint is ignored.
    pub(crate) fn new(
        inputs: usize,
        outputs: usize,
        sum: u32,
        cell: impl Fn(usize, usize) -> u8,
    ) -> Result<Matrix, CodeError> {
        if inputs > DATA_MAX || outputs > PARITY_MAX || inputs * outputs > CELLS_MAX {
            return Err(CodeError::TooManyStrips { data: inputs, parity: outputs });
        }
        let mut matrix = Matrix {
            inputs: inputs as u8,
            outputs: outputs as u8,
            summed: 0,
            folded: 0,
            input_order: core::array::from_fn(|i| i as u8),
            output_order: core::array::from_fn(|o| o as u8),
            cells: [0; CELLS_MAX],
            #[cfg(target_arch = "x86_64")]
            affine: [0; CELLS_MAX],
        };
        matrix.find_sum(sum, &cell);
        for i in 0..inputs {
            for o in 0..outputs {
                let (input, output) = (matrix.input_order[i], matrix.output_order[o]);
                let c = cell(usize::from(output), usize::from(input));
                matrix.cells[i * outputs + o] = c;
                #[cfg(target_arch = "x86_64")]
                {
                    matrix.affine[i * outputs + o] = gf::AFFINE[usize::from(c)];
                }
            }
        }
        Ok(matrix)
    }

    /// Reorders inputs and outputs if the sum of the outputs in the mask is a plain sum of inputs.
    fn find_sum(&mut self, sum: u32, cell: &impl Fn(usize, usize) -> u8) {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        let members = || (0..outputs).filter(|o| sum >> o & 1 != 0);
        let Some(first) = members().next() else {
            return;
        };
        // The added outputs must be in the same group of outputs as the sum.
        if outputs > crate::kernels::GROUP && members().count() > 1 {
            return;
        }
        let total = |i: usize| members().fold(0, |total, o| total ^ cell(o, i));
        if (0..inputs).any(|i| total(i) > 1) {
            return;
        }
        let summed = (0..inputs).filter(|&i| total(i) == 1);
        let others = (0..inputs).filter(|&i| total(i) == 0);
        for (place, i) in self.input_order.iter_mut().zip(summed.chain(others)) {
            *place = i as u8;
        }
        self.summed = (0..inputs).filter(|&i| total(i) == 1).count() as u8;
        self.output_order.swap(0, first);
        let order = self.output_order;
        let folded = (1..outputs).filter(|&o| sum >> order[o] & 1 != 0);
        self.folded = folded.fold(0, |mask, o| mask | 1 << o);
    }

    /// Returns the number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        usize::from(self.inputs)
    }

    /// Returns the number of outputs.
    pub(crate) fn outputs(&self) -> usize {
        usize::from(self.outputs)
    }

    /// Returns the number of leading inputs whose sum, with [`Matrix::folded`], is the first output; zero if it is not
    /// a sum.
    pub(crate) fn summed(&self) -> usize {
        usize::from(self.summed)
    }

    /// Returns the mask of the outputs that are added to the sum.
    pub(crate) fn folded(&self) -> u32 {
        self.folded
    }

    /// Returns the position of input `i` in the list of the caller.
    pub(crate) fn input_place(&self, i: usize) -> usize {
        usize::from(self.input_order[i])
    }

    /// Returns the position of output `o` in the list of the caller.
    pub(crate) fn output_place(&self, o: usize) -> usize {
        usize::from(self.output_order[o])
    }

    /// Returns all coefficients, in the order of the matrix.
    pub(crate) fn cells(&self) -> &[u8; CELLS_MAX] {
        &self.cells
    }

    /// Returns all coefficients as bit matrices, in the order of the matrix.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn affine(&self) -> &[u64; CELLS_MAX] {
        &self.affine
    }

    /// Returns the coefficient of an input in an output, both in the order of the caller; zero if one of them does not
    /// exist.
    pub(crate) fn coefficient(&self, output: usize, input: usize) -> u8 {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        if input >= inputs || output >= outputs {
            return 0;
        }
        // In a code, and in most of a recovery, the order is that of the caller.
        let i = Some(input).filter(|&i| self.input_place(i) == input);
        let i = i.or_else(|| (0..inputs).find(|&i| self.input_place(i) == input));
        let o = Some(output).filter(|&o| self.output_place(o) == output);
        let o = o.or_else(|| (0..outputs).find(|&o| self.output_place(o) == output));
        i.zip(o).map_or(0, |(i, o)| self.cells[i * outputs + o])
    }
}
